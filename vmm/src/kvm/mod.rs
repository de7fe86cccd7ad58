//! The virtual machine as KVM sees it, one noun per file.

pub mod fault_counts;
pub mod irq_line;
pub mod open;
pub mod pool_wait;
pub mod vcpu;
pub mod vcpu_pause;
pub mod vcpu_threads;
pub mod vm;
