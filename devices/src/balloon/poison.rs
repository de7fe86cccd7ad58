//! Page poison (bit 4): the value the guest fills its free pages with, and
//! expects to find in them.

/// What the driver said at DRIVER_OK; `None` if bit 4 was not negotiated, and
/// then the guest expects nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Poison(pub(crate) Option<u32>);

impl Poison {
    /// Whether free memory of the guest may become zero, and may be promised to
    /// be: with another poison value it must keep that value (virtio 1.3,
    /// 5.5.6.7), so it is neither cleared nor discarded, and nothing is said
    /// of it.
    ///
    /// A page in the balloon is different: its driver fills it again when it
    /// takes it back (5.5.6.6), so it may be discarded, but clearing it in
    /// place would be for nothing.
    pub(crate) fn allows_zero(self) -> bool {
        matches!(self.0, None | Some(0))
    }
}
