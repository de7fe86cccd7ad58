//! The archive a kernel unpacks as its initial RAM file system: "newc" cpio.
//!
//! Format: `Documentation/driver-api/early-userspace/buffer-format.rst`.

use std::io::{self, Write};

/// "new ASCII" format without checksums.
const MAGIC: &str = "070701";
/// Headers, names and contents are padded to this.
const ALIGN: usize = 4;
/// The name that ends an archive.
const TRAILER: &str = "TRAILER!!!";

const S_IFDIR: u32 = 0o040_000;
const S_IFREG: u32 = 0o100_000;
const S_IFCHR: u32 = 0o020_000;

/// Writes an archive, entry by entry.
pub struct Archive<W> {
    to: W,
    inode: u32,
}

impl<W: Write> Archive<W> {
    /// An empty archive.
    pub fn new(to: W) -> Self {
        Self { to, inode: 0 }
    }

    /// A directory; `name` has no leading slash.
    ///
    /// # Errors
    ///
    /// Those of the writer.
    pub fn directory(&mut self, name: &str) -> io::Result<()> {
        self.entry(name, S_IFDIR | 0o755, (0, 0), &[])
    }

    /// A file with these permissions.
    ///
    /// # Errors
    ///
    /// Those of the writer, and for content of 4 GiB or more.
    pub fn file(&mut self, name: &str, permissions: u32, content: &[u8]) -> io::Result<()> {
        self.entry(name, S_IFREG | (permissions & 0o7777), (0, 0), content)
    }

    /// A character device node.
    ///
    /// # Errors
    ///
    /// Those of the writer.
    pub fn character_device(&mut self, name: &str, device: (u32, u32)) -> io::Result<()> {
        self.entry(name, S_IFCHR | 0o600, device, &[])
    }

    /// Ends the archive and gives the writer back.
    ///
    /// # Errors
    ///
    /// Those of the writer.
    pub fn finish(mut self) -> io::Result<W> {
        self.entry(TRAILER, 0, (0, 0), &[])?;
        Ok(self.to)
    }

    fn entry(
        &mut self,
        name: &str,
        mode: u32,
        device: (u32, u32),
        content: &[u8],
    ) -> io::Result<()> {
        let too_long = |_| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{name} does not fit into cpio"),
            )
        };
        let size = u32::try_from(content.len()).map_err(too_long)?;
        let name_size = u32::try_from(name.len() + 1).map_err(too_long)?;
        self.inode += 1;
        let fields = [
            self.inode, mode, 0, 0, 1, 0, size, 0, 0, device.0, device.1, name_size, 0,
        ];
        let mut header = String::from(MAGIC);
        for field in fields {
            header.push_str(&format!("{field:08x}"));
        }
        header.push_str(name);
        header.push('\0');
        self.padded(header.as_bytes())?;
        self.padded(content)
    }

    fn padded(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.to.write_all(bytes)?;
        let padding = bytes.len().next_multiple_of(ALIGN) - bytes.len();
        self.to
            .write_all([0; ALIGN].get(..padding).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn archive() -> Vec<u8> {
        let mut archive = Archive::new(Vec::new());
        archive.directory("dev").unwrap();
        archive.character_device("dev/console", (5, 1)).unwrap();
        archive.file("init", 0o755, b"hello").unwrap();
        archive.file("empty", 0o644, b"").unwrap();
        archive.finish().unwrap()
    }

    /// Name, mode, device, content.
    type Entry = (String, u32, (u32, u32), Vec<u8>);

    /// Reads the archive by the format's own rules.
    fn parse(mut bytes: &[u8]) -> Vec<Entry> {
        fn take<'a>(bytes: &mut &'a [u8], used: &mut usize, length: usize) -> &'a [u8] {
            let (now, later) = bytes.split_at(length);
            *bytes = later;
            *used += length;
            now
        }
        let mut used = 0;
        let mut entries = Vec::new();
        loop {
            let header = std::str::from_utf8(take(&mut bytes, &mut used, 110)).unwrap();
            assert_eq!(&header[..6], "070701");
            let field = |n: usize| u32::from_str_radix(&header[6 + 8 * n..14 + 8 * n], 16).unwrap();
            let name = take(&mut bytes, &mut used, field(11) as usize);
            let name = std::str::from_utf8(name)
                .unwrap()
                .strip_suffix('\0')
                .unwrap()
                .to_owned();
            let padding = used.next_multiple_of(4) - used;
            take(&mut bytes, &mut used, padding);
            let content = take(&mut bytes, &mut used, field(6) as usize).to_vec();
            let padding = used.next_multiple_of(4) - used;
            take(&mut bytes, &mut used, padding);
            if name == "TRAILER!!!" {
                assert!(bytes.is_empty());
                return entries;
            }
            entries.push((name, field(1), (field(9), field(10)), content));
        }
    }

    #[test]
    fn an_archive_reads_back_by_the_rules_of_its_format() {
        let expected = [
            ("dev", 0o040_755, (0, 0), &b""[..]),
            ("dev/console", 0o020_600, (5, 1), b""),
            ("init", 0o100_755, (0, 0), b"hello"),
            ("empty", 0o100_644, (0, 0), b""),
        ];
        let entries = parse(&archive());
        let entries: Vec<_> = entries
            .iter()
            .map(|(n, m, d, c)| (n.as_str(), *m, *d, c.as_slice()))
            .collect();
        assert_eq!(entries, expected);
    }

    #[test]
    fn the_systems_own_cpio_lists_the_same_names() {
        let child = Command::new("cpio")
            .args(["-t", "--quiet"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let Ok(mut child) = child else {
            assert!(
                std::env::var_os("AEROSTAT_REQUIRE").is_none(),
                "cpio is not installed"
            );
            eprintln!("SKIPPED: cpio is not installed (apt-get install cpio)");
            return;
        };
        child.stdin.take().unwrap().write_all(&archive()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        assert_eq!(
            String::from_utf8(output.stdout).unwrap(),
            "dev\ndev/console\ninit\nempty\n"
        );
    }
}
