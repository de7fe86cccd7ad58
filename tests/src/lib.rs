//! Boot tests live in `tests/`.
