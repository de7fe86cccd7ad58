//! The Debian mirror and keyring this system uses.

use std::fs;
use std::path::PathBuf;

use crate::Failure;

const SOURCES_LIST: &str = "/etc/apt/sources.list";
const SOURCES_PARTS: &str = "/etc/apt/sources.list.d";

/// A Debian archive this system trusts.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mirror {
    uri: String,
    keyring: Option<String>,
}

impl Mirror {
    /// The line of a sources.list for `suite`.
    pub(crate) fn line(&self, suite: &str) -> String {
        let keyring = self.keyring.as_ref();
        let option = keyring.map_or(String::new(), |path| format!("[signed-by={path}] "));
        format!("deb {option}{} {suite} main\n", self.uri)
    }
}

/// The archive of Debian itself that the system's apt uses.
pub(crate) fn mirror() -> Result<Mirror, Failure> {
    let mut files = vec![PathBuf::from(SOURCES_LIST)];
    if let Ok(entries) = fs::read_dir(SOURCES_PARTS) {
        files.extend(entries.flatten().map(|entry| entry.path()));
    }
    files.sort();
    for path in files {
        let Ok(text) = fs::read_to_string(&path) else {
            continue;
        };
        let found = match path.extension().and_then(|e| e.to_str()) {
            Some("list") => one_line_style(&text),
            Some("sources") => deb822_style(&text),
            _ => None,
        };
        if let Some(mirror) = found {
            return Ok(mirror);
        }
    }
    Err(format!("{SOURCES_LIST} and {SOURCES_PARTS} name no Debian archive").into())
}

/// The archive proper, not `debian-security` or another vendor's.
fn is_archive(uri: &str) -> bool {
    uri.trim_end_matches('/').ends_with("/debian")
}

fn one_line_style(text: &str) -> Option<Mirror> {
    text.lines().find_map(|line| {
        let rest = line.trim().strip_prefix("deb ")?.trim();
        let (options, rest) = match rest.strip_prefix('[') {
            Some(rest) => rest.split_once(']')?,
            None => ("", rest),
        };
        let uri = rest.split_whitespace().next()?;
        let mut options = options.split_whitespace();
        let keyring = options.find_map(|option| option.strip_prefix("signed-by="));
        is_archive(uri).then(|| Mirror {
            uri: uri.to_owned(),
            keyring: keyring.map(str::to_owned),
        })
    })
}

fn deb822_style(text: &str) -> Option<Mirror> {
    let stanzas = text.split("\n\n");
    stanzas.into_iter().find_map(|stanza| {
        let field = |name: &str| {
            let mut lines = stanza.lines().filter_map(|line| line.split_once(':'));
            let line = lines.find(|(key, _)| key.eq_ignore_ascii_case(name));
            line.map(|(_, value)| value.trim())
        };
        let uri = field("URIs")?.split_whitespace().find(|u| is_archive(u))?;
        // A key may also be spelled out in the file; only paths can be reused.
        let keyring = field("Signed-By").filter(|value| value.starts_with('/'));
        Some(Mirror {
            uri: uri.to_owned(),
            keyring: keyring.map(str::to_owned),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_mirror_and_keyring_are_found() {
        let mirror = |keyring: Option<&str>| {
            Some(Mirror {
                uri: "http://mirror.example/debian".to_owned(),
                keyring: keyring.map(str::to_owned),
            })
        };
        let deb822 = "Types: deb\n# a comment\nURIs: http://mirror.example/debian\n\
                      Suites: bookworm\nComponents: main\nSigned-By: /k/debian.gpg\n\n\
                      Types: deb\nURIs: http://mirror.example/debian-security\n";
        assert_eq!(deb822_style(deb822), mirror(Some("/k/debian.gpg")));

        let list = "# deb http://old.example/debian x main\n\
                    deb https://vendor.example/apt stable main\n\
                    deb [arch=amd64 signed-by=/k/d.gpg] http://mirror.example/debian x main\n";
        assert_eq!(one_line_style(list), mirror(Some("/k/d.gpg")));
        let list = "deb http://mirror.example/debian x main\n";
        assert_eq!(one_line_style(list), mirror(None));
        assert_eq!(
            one_line_style("deb https://vendor.example/apt x main\n"),
            None
        );
    }

    #[test]
    fn our_source_line_names_the_suite_and_the_keyring() {
        let mirror = Mirror {
            uri: "http://m/debian".to_owned(),
            keyring: Some("/k".to_owned()),
        };
        assert_eq!(
            mirror.line("s"),
            "deb [signed-by=/k] http://m/debian s main\n"
        );
    }
}
