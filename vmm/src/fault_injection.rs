//! A host that lies, to see that the guest's verifier catches it
//! (`balloon.lie_about_zero`). Never part of a real run.

use std::sync::Arc;

use devices::balloon::guest_range::GuestRange;
use devices::balloon::host_zeroes::{ZeroBy, ZeroError, ZeroGuestRange, Zeroed};

/// Claims that memory is zero and leaves it as it is.
pub struct LyingZeroer(Arc<dyn ZeroGuestRange>);

impl LyingZeroer {
    /// Lies in the place of `honest`, and says loudly that it does.
    #[must_use]
    pub fn new(honest: Arc<dyn ZeroGuestRange>) -> Self {
        log::error!(
            "FAULT INJECTION: reported and inflated memory is claimed to be zero and is not \
             (balloon.lie_about_zero)"
        );
        Self(honest)
    }
}

impl ZeroGuestRange for LyingZeroer {
    fn page_size(&self, region: u64) -> u64 {
        self.0.page_size(region)
    }

    fn zero(&self, range: GuestRange, _by: ZeroBy) -> Result<Zeroed, ZeroError> {
        Ok(Zeroed::vouch(range, 0))
    }

    /// Promises nothing, so there is nothing to lie about.
    fn release(&self, range: GuestRange) -> Result<u64, ZeroError> {
        self.0.release(range)
    }

    fn make_present(&self, range: GuestRange) -> Result<(), ZeroError> {
        self.0.make_present(range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Must not be asked to zero.
    struct Untouched;

    impl ZeroGuestRange for Untouched {
        fn page_size(&self, _region: u64) -> u64 {
            0x20_0000
        }
        fn zero(&self, _range: GuestRange, _by: ZeroBy) -> Result<Zeroed, ZeroError> {
            panic!("the lie touched memory");
        }
        fn release(&self, range: GuestRange) -> Result<u64, ZeroError> {
            Ok(range.len())
        }
        fn make_present(&self, _range: GuestRange) -> Result<(), ZeroError> {
            Ok(())
        }
    }

    #[test]
    fn it_claims_the_whole_range_and_does_nothing() {
        let range = GuestRange::new(0x20_0000, 0x20_0000).unwrap();
        let lying = LyingZeroer::new(Arc::new(Untouched));
        let claim = lying.zero(range, ZeroBy::Discarding).unwrap();
        assert_eq!((claim.range(), claim.released()), (range, 0));
        assert_eq!(
            lying.release(range),
            Ok(0x20_0000),
            "releasing promises nothing"
        );
    }
}
