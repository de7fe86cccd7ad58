//! Tests on real memory of the host. Those that need a hugetlb pool grow it and
//! put it back ([`pool_guard`]); without permission they say so and skip.

mod absent_memory;
mod absent_rings;
mod ballooned;
mod creating;
mod discarding_together;
mod guest;
mod inflating;
mod pool_guard;
mod populating;
mod releasing;
mod swap_guard;
mod swapped;
mod untrusted_calls;
mod without_proof;
mod zeroing;
