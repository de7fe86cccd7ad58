use proptest::prelude::*;

use super::*;
use crate::host::protocol::Decoder;

fn class() -> impl Strategy<Value = FailureClass> {
    prop_oneof![
        Just(FailureClass::Usage),
        Just(FailureClass::NoKvm),
        Just(FailureClass::Memory),
        Just(FailureClass::Skipped),
        Just(FailureClass::Internal),
    ]
}

fn pool() -> impl Strategy<Value = Option<Pool>> {
    proptest::option::of(
        (any::<u64>(), any::<u64>()).prop_map(|(page_bytes, pages)| Pool { page_bytes, pages }),
    )
}

fn leak() -> impl Strategy<Value = Leak> {
    any::<[u64; 4]>().prop_map(|[page_bytes, total, free, reserved]| Leak {
        page_bytes,
        total,
        free,
        reserved,
    })
}

fn ended() -> impl Strategy<Value = Ended> {
    prop_oneof![
        any::<i32>().prop_map(Ended::Exited),
        any::<i32>().prop_map(Ended::Signalled),
        (class(), any::<String>()).prop_map(|(class, message)| Ended::Refused { class, message }),
    ]
}

fn ready() -> impl Strategy<Value = Ready> {
    (
        any::<[String; 3]>(),
        any::<[u32; 2]>(),
        any::<[u64; 2]>(),
        any::<Option<String>>(),
    )
        .prop_map(
            |([aerostat, kernel, cpu], [protocol, cpus], [memory, uptime_ms], no_kvm)| Ready {
                protocol,
                aerostat,
                kernel,
                cpu,
                cpus,
                memory,
                no_kvm,
                uptime_ms,
            },
        )
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(any::<u8>(), 0..200)
}

fn message() -> impl Strategy<Value = Message> {
    prop_oneof![
        (any::<String>(), any::<u64>())
            .prop_map(|(id, bytes)| Message::FileStart(FileStart { id, bytes })),
        bytes().prop_map(Message::FileData),
        (any::<String>(), pool(), any::<u64>(), any::<[bool; 3]>()).prop_map(
            |(config, pool, plain_bytes, [input, control, debug])| {
                Message::Job(Job {
                    config,
                    pool,
                    plain_bytes,
                    input,
                    control,
                    debug,
                })
            }
        ),
        bytes().prop_map(Message::Input),
        bytes().prop_map(Message::Calls),
        bytes().prop_map(Message::Answers),
        Just(Message::InputEnd),
        Just(Message::Stop),
        Just(Message::Kill),
        ready().prop_map(Message::Ready),
        (any::<String>(), any::<Option<String>>())
            .prop_map(|(id, error)| Message::FileStored(FileStored { id, error })),
        any::<u32>().prop_map(Message::InputTaken),
        bytes().prop_map(Message::Output),
        bytes().prop_map(Message::Log),
        bytes().prop_map(Message::Results),
        (ended(), proptest::collection::vec(leak(), 0..3))
            .prop_map(|(ended, leaks)| Message::Done(Done { ended, leaks })),
        Just(Message::Alive),
    ]
}

fn decode_all(stream: &[u8]) -> Result<Vec<Message>, MessageError> {
    let mut decoder = Decoder::default();
    decoder.feed(stream);
    let mut messages = Vec::new();
    while let Some(frame) = decoder.next_frame()? {
        messages.push(Message::decode(&frame)?);
    }
    Ok(messages)
}

proptest! {
    #[test]
    fn every_message_survives_the_wire(messages in proptest::collection::vec(message(), 0..8)) {
        let mut stream = Vec::new();
        for message in &messages {
            message.encode(&mut stream).unwrap();
        }
        prop_assert_eq!(decode_all(&stream).unwrap(), messages);
    }

    #[test]
    fn a_frame_of_hostile_content_is_a_message_or_an_error(kind in 0..80_u16, payload in bytes()) {
        // Not panicking is the property; what decodes must encode to the same meaning.
        if let Ok(message) = Message::decode(&Frame { kind, payload: &payload }) {
            let mut stream = Vec::new();
            message.encode(&mut stream).unwrap();
            prop_assert_eq!(decode_all(&stream).unwrap(), vec![message]);
        }
    }
}

#[test]
fn wrong_kinds_headers_and_numbers_are_errors() {
    for (kind, payload, expected) in [
        (0, &b""[..], "frame of unknown kind 0"),
        (JOB, b"{}", "frame of kind 3: missing field `config`"),
        (READY, b"\xff", "frame of kind 64: "),
        (INPUT_TAKEN, b"123", "frame of kind 66 with 3 bytes"),
    ] {
        let error = Message::decode(&Frame { kind, payload })
            .unwrap_err()
            .to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}
