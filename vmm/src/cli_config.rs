//! `aerostat config`.

use vmm::config::{ConfigError, Loaded, Overrides};
use vmm::outcome::FailureClass;

use crate::cli::{ConfigCommand, ConfigSource};
use crate::talk::{print, say};

/// Shows or checks a configuration; returns the exit code.
pub(crate) fn run(command: &ConfigCommand, quiet: bool) -> u8 {
    let done = match command {
        ConfigCommand::Show { source, origin } => load(source).map(|loaded| {
            print(&if *origin {
                loaded.to_toml_with_origins()
            } else {
                loaded.config.to_toml()
            })
        }),
        ConfigCommand::Check { source } => load(source).and_then(|loaded| {
            loaded.check_named_files()?;
            if !quiet {
                say(&format_args!("{}: ok", source.config.display()));
            }
            Ok(0)
        }),
    };
    done.unwrap_or_else(|error| {
        say(&error);
        FailureClass::Usage.exit_code()
    })
}

fn load(source: &ConfigSource) -> Result<Loaded, ConfigError> {
    let overrides = Overrides {
        sets: source.set.clone(),
        ..Overrides::default()
    };
    let loaded = Loaded::from_file(&source.config, &overrides)?;
    for warning in &loaded.warnings {
        log::warn!("{warning}");
    }
    Ok(loaded)
}
