//! `fuzz::control_socket` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::control_socket(data));
