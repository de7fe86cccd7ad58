//! Runs that ended without a word from the inner run.

use crate::outcome::{FailureClass, Verdict};
use crate::results::{HostFacts, HostKind};

/// A failure of this class.
pub(crate) fn failed(class: FailureClass, message: impl Into<String>) -> Verdict {
    Verdict::Failed {
        class,
        message: message.into(),
    }
}

/// What is known of a host that never came up.
pub(crate) fn no_facts(kind: HostKind) -> HostFacts {
    HostFacts {
        kind,
        kernel: String::new(),
        cpu: String::new(),
        cpus: 0,
        thp: None,
        pools: Vec::new(),
    }
}
