//! A frame: magic, kind, length, payload.

use thiserror::Error;

/// First two bytes of each frame: what is not a frame is noticed at once.
pub const MAGIC: [u8; 2] = [0xae, 0x57];
/// Magic (2), kind (2), payload length (4), all little endian.
pub const HEADER_BYTES: usize = 8;
/// Longest payload. Bounds what a broken peer can make this side hold.
pub const MAX_PAYLOAD: usize = 1 << 20;
/// Raw data (files, console) is cut into payloads of at most this many bytes,
/// so that a stop request never waits behind more than one of them.
pub const CHUNK_BYTES: usize = 64 << 10;

/// One frame, borrowed from its [`Decoder`].
#[derive(Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// What the payload is.
    pub kind: u16,
    /// At most [`MAX_PAYLOAD`] bytes.
    pub payload: &'a [u8],
}

/// Bytes that are no frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum FrameError {
    /// The stream lost its framing, or something else writes to it.
    #[error("frame starts with {0:#04x} {1:#04x} instead of 0xae 0x57")]
    Magic(u8, u8),
    /// Longer than any frame may be.
    #[error("frame of {0} bytes, at most {MAX_PAYLOAD} are allowed")]
    TooLong(usize),
}

/// Appends a frame to `out`.
///
/// # Errors
///
/// [`FrameError::TooLong`], with `out` unchanged.
pub fn encode(kind: u16, payload: &[u8], out: &mut Vec<u8>) -> Result<(), FrameError> {
    let length = match u32::try_from(payload.len()) {
        Ok(length) if payload.len() <= MAX_PAYLOAD => length,
        _ => return Err(FrameError::TooLong(payload.len())),
    };
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&kind.to_le_bytes());
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(payload);
    Ok(())
}

/// Puts frames together from bytes as they come.
///
/// Holds at most one frame and what was fed behind it, provided the frames are
/// taken out after each [`Decoder::feed`].
#[derive(Debug, Default)]
pub struct Decoder {
    bytes: Vec<u8>,
    taken: usize,
}

impl Decoder {
    /// Adds received bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.taken > 0 {
            self.bytes.drain(..self.taken);
            self.taken = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole frame, or `None` until more bytes came.
    ///
    /// # Errors
    ///
    /// [`FrameError`] as soon as a header is wrong; the stream is then useless.
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, FrameError> {
        let rest = self.bytes.get(self.taken..).unwrap_or_default();
        let Some((header, rest)) = rest.split_first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let [magic0, magic1, kind0, kind1, length @ ..] = *header;
        if [magic0, magic1] != MAGIC {
            return Err(FrameError::Magic(magic0, magic1));
        }
        let length = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
        if length > MAX_PAYLOAD {
            return Err(FrameError::TooLong(length));
        }
        let Some(payload) = rest.get(..length) else {
            return Ok(None);
        };
        self.taken += HEADER_BYTES + length;
        Ok(Some(Frame {
            kind: u16::from_le_bytes([kind0, kind1]),
            payload,
        }))
    }

    /// Bytes held.
    #[must_use]
    pub fn held(&self) -> usize {
        self.bytes.len() - self.taken
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frames() -> impl Strategy<Value = Vec<(u16, Vec<u8>)>> {
        let frame = (any::<u16>(), proptest::collection::vec(any::<u8>(), 0..300));
        proptest::collection::vec(frame, 0..12)
    }

    proptest! {
        #[test]
        fn frames_survive_any_cutting(frames in frames(), cuts in proptest::collection::vec(1..97_usize, 1..40)) {
            let mut stream = Vec::new();
            for (kind, payload) in &frames {
                encode(*kind, payload, &mut stream).unwrap();
            }
            let mut decoder = Decoder::default();
            let mut seen = Vec::new();
            let mut rest = stream.as_slice();
            let mut cuts = cuts.iter().cycle();
            while !rest.is_empty() {
                let (now, later) = rest.split_at(rest.len().min(*cuts.next().unwrap()));
                rest = later;
                decoder.feed(now);
                while let Some(frame) = decoder.next_frame().unwrap() {
                    seen.push((frame.kind, frame.payload.to_vec()));
                }
            }
            prop_assert_eq!(seen, frames);
            prop_assert_eq!(decoder.held(), 0);
        }

        #[test]
        fn hostile_bytes_are_refused_or_bounded(chunks in proptest::collection::vec(
            proptest::collection::vec(any::<u8>(), 0..4096), 0..16))
        {
            let mut decoder = Decoder::default();
            'stream: for chunk in &chunks {
                decoder.feed(chunk);
                loop {
                    match decoder.next_frame() {
                        Ok(Some(frame)) => prop_assert!(frame.payload.len() <= MAX_PAYLOAD),
                        Ok(None) => break,
                        Err(_) => break 'stream,
                    }
                }
                prop_assert!(decoder.held() <= HEADER_BYTES + MAX_PAYLOAD);
            }
        }
    }

    #[test]
    fn a_length_past_the_bound_is_refused_from_the_header_alone() {
        let mut decoder = Decoder::default();
        decoder.feed(&[0xae, 0x57, 1, 0]);
        assert_eq!(decoder.next_frame(), Ok(None));
        decoder.feed(&(u32::try_from(MAX_PAYLOAD).unwrap() + 1).to_le_bytes());
        assert_eq!(
            decoder.next_frame(),
            Err(FrameError::TooLong(MAX_PAYLOAD + 1))
        );
    }

    #[test]
    fn kernel_text_on_the_stream_is_named() {
        let mut decoder = Decoder::default();
        decoder.feed(b"Kernel panic");
        assert_eq!(decoder.next_frame(), Err(FrameError::Magic(b'K', b'e')));
    }

    #[test]
    fn the_longest_frame_passes_and_one_byte_more_does_not() {
        let mut stream = Vec::new();
        encode(7, &vec![0x5a; MAX_PAYLOAD], &mut stream).unwrap();
        let mut decoder = Decoder::default();
        decoder.feed(&stream);
        assert_eq!(
            decoder.next_frame().unwrap().unwrap().payload.len(),
            MAX_PAYLOAD
        );
        let length = stream.len();
        assert_eq!(
            encode(7, &vec![0x5a; MAX_PAYLOAD + 1], &mut stream),
            Err(FrameError::TooLong(MAX_PAYLOAD + 1))
        );
        assert_eq!(stream.len(), length);
    }
}
