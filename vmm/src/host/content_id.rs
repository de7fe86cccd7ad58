//! The name of a file by its content.

use std::hash::{DefaultHasher, Hasher};

/// Hashes content as it passes.
///
/// It tells the few files of a session apart and notices a file that changes
/// while it is sent. Who could forge a collision could as well name another
/// file, so speed counts here and cryptographic strength does not.
#[derive(Debug, Default)]
pub struct ContentHasher {
    hash: DefaultHasher,
    bytes: u64,
}

impl ContentHasher {
    /// Bytes hashed so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The name: hash and length.
    #[must_use]
    pub fn id(&self) -> String {
        format!("{:016x}-{}", self.hash.finish(), self.bytes)
    }
}

impl Hasher for ContentHasher {
    fn finish(&self) -> u64 {
        self.hash.finish()
    }

    fn write(&mut self, bytes: &[u8]) {
        self.hash.write(bytes);
        self.bytes += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    }
}

/// Whether `id` has the form of [`ContentHasher::id`], and so is safe as a file name.
#[must_use]
pub fn is_id(id: &str) -> bool {
    let Some((hash, bytes)) = id.split_once('-') else {
        return false;
    };
    hash.len() == 16
        && hash.bytes().all(|c| c.is_ascii_hexdigit())
        && !bytes.is_empty()
        && bytes.bytes().all(|c| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id_of(pieces: &[&[u8]]) -> String {
        let mut hasher = ContentHasher::default();
        pieces.iter().for_each(|piece| hasher.write(piece));
        hasher.id()
    }

    #[test]
    fn the_name_depends_on_the_content_and_not_on_how_it_was_cut() {
        assert_eq!(
            id_of(&[b"kernel", b" image"]),
            id_of(&[b"k", b"", b"ernel image"])
        );
        assert_ne!(id_of(&[b"kernel"]), id_of(&[b"kernem"]));
        assert_ne!(id_of(&[b""]), id_of(&[b"\0"]));
        assert!(id_of(&[b"kernel"]).ends_with("-6"));
    }

    #[test]
    fn only_names_of_this_form_are_accepted_from_the_wire() {
        assert!(is_id(&id_of(&[b"kernel"])));
        for bad in [
            "",
            "../../etc/passwd",
            "0123456789abcdef",
            "0123456789abcdef-",
            "0123456789abcdef-1/..",
            "x123456789abcdef-1",
        ] {
            assert!(!is_id(bad), "{bad}");
        }
    }
}
