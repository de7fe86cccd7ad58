//! Files the user names, which may be named pipes: opening one of those waits
//! for its other end, for ever if nobody comes.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

/// Opens `path` as `options` say, without waiting; reading and writing wait as
/// usual.
///
/// # Errors
/// Those of opening. A pipe nobody reads cannot be opened for writing; one that
/// nobody writes reads as empty.
pub fn open(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let file = options
        .custom_flags(libc::O_NONBLOCK)
        .open(path)
        .map_err(|error| match error.raw_os_error() {
            Some(libc::ENXIO) => io::Error::other("nobody reads this pipe"),
            _ => error,
        })?;
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{Read, Write};
    use std::thread;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn a_pipe_without_another_end_is_not_waited_for_and_one_with_it_works() {
        let path = std::env::temp_dir().join(format!("aerostat-pipe-{}", std::process::id()));
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();

        let error = open(OpenOptions::new().write(true), &path).unwrap_err();
        assert_eq!(error.to_string(), "nobody reads this pipe");
        let mut text = String::new();
        let mut reader = open(OpenOptions::new().read(true), &path).unwrap();
        assert_eq!(reader.read_to_string(&mut text).unwrap(), 0);

        let mut writer = open(OpenOptions::new().write(true), &path).unwrap();
        let late = thread::spawn(move || {
            thread::sleep(std::time::Duration::from_millis(50));
            writer.write_all(b"late").unwrap();
        });
        reader.read_to_string(&mut text).unwrap();
        late.join().unwrap();
        assert_eq!(text, "late", "a read waits for a writer that is there");
        fs::remove_file(&path).unwrap();
    }
}
