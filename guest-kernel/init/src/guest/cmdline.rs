//! The kernel command line.
//!
//! The steps are read from `/proc/cmdline` and not from the arguments of init:
//! the kernel puts every word before `--` that it does not know among those.

/// The words of `cmdline`; a quoted part may hold blanks, quotes are dropped.
fn words(cmdline: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let (mut quoted, mut begun) = (false, false);
    for letter in cmdline.chars() {
        match letter {
            '"' => {
                quoted = !quoted;
                begun = true;
            }
            blank if blank.is_ascii_whitespace() && !quoted => {
                if begun {
                    words.push(std::mem::take(&mut word));
                }
                begun = false;
            }
            other => {
                word.push(other);
                begun = true;
            }
        }
    }
    if begun {
        words.push(word);
    }
    words
}

/// The words after `--`: the steps.
pub(crate) fn step_words(cmdline: &str) -> Vec<String> {
    words(cmdline)
        .into_iter()
        .skip_while(|word| word != "--")
        .skip(1)
        .collect()
}

/// The parameters of `module` that are on the command line, as
/// `module.name=value`, in the form in which a loader passes them: `name=value`.
pub(crate) fn module_parameters(cmdline: &str, module: &str) -> String {
    // The kernel takes `-` and `_` in names for the same.
    let plain = |name: &str| name.replace('-', "_");
    let parameters: Vec<_> = words(cmdline)
        .into_iter()
        .take_while(|word| word != "--")
        .filter_map(|word| {
            let (owner, parameter) = word.split_once('.')?;
            (plain(owner) == plain(module)).then(|| {
                if parameter.contains(' ') {
                    match parameter.split_once('=') {
                        Some((name, value)) => format!("{name}=\"{value}\""),
                        None => parameter.to_owned(),
                    }
                } else {
                    parameter.to_owned()
                }
            })
        })
        .collect();
    parameters.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_steps_are_the_words_after_two_dashes() {
        for (cmdline, steps) in [
            (
                "console=ttyS0 quiet -- flush populate=4M,thp\n",
                vec!["flush", "populate=4M,thp"],
            ),
            (
                "a -- \"print=two words\" print=\"b  c\"",
                vec!["print=two words", "print=b  c"],
            ),
            ("a -- b -- c", vec!["b", "--", "c"]),
            ("a --", vec![]),
            ("flush --x", vec![]),
            ("", vec![]),
        ] {
            assert_eq!(step_words(cmdline), steps, "{cmdline}");
        }
    }

    #[test]
    fn a_module_gets_its_own_parameters() {
        let cmdline = "virtio_mmio.device=4K@0xd0000000:5 virtio-mmio.x=1 page_reporting.y=2 \
                       m.text=\"a b\" -- virtio_mmio.z=3";
        assert_eq!(
            module_parameters(cmdline, "virtio_mmio"),
            "device=4K@0xd0000000:5 x=1"
        );
        assert_eq!(module_parameters(cmdline, "page-reporting"), "y=2");
        assert_eq!(module_parameters(cmdline, "m"), "text=\"a b\"");
        assert_eq!(module_parameters(cmdline, "virtio_balloon"), "");
    }

    proptest! {
        #[test]
        fn words_without_quotes_split_at_blanks(cmdline in "[ a-z=.-]{0,60}") {
            let plain: Vec<_> = cmdline.split_ascii_whitespace().collect();
            prop_assert_eq!(words(&cmdline), plain);
        }
    }
}
