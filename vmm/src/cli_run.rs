//! `aerostat run`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::time::Instant;

use vmm::config::{Config, ConfigError, ConsoleOutput, Loaded, Overrides};
use vmm::control::pipes::{self, PIPES_VARIABLE};
use vmm::control::port::ControlPort;
use vmm::control::server::ControlServer;
use vmm::control::socket_file::{ControlSocket, SocketError};
use vmm::host::{self, HostOptions, native};
use vmm::named_pipe;
use vmm::outcome::{FailureClass, Verdict};
use vmm::results::{HostKind, RunResults};
use vmm::results_file::ResultsFile;
use vmm::run_io::RunIo;
use vmm::stop_signals;
use vmm::terminal::RawTerminal;

use crate::cli::RunArgs;
use crate::talk::{print, say};

/// Runs the guest; returns the exit code.
pub(crate) fn run(args: RunArgs, quiet: bool, exec: Instant) -> u8 {
    match try_run(args, exec) {
        Ok(verdict) => {
            if !quiet || matches!(verdict, Verdict::Failed { .. }) {
                say(&verdict);
            }
            verdict.exit_code()
        }
        Err(Refused::Config(error)) => {
            say(&error);
            FailureClass::Usage.exit_code()
        }
        Err(Refused::System(what, error)) => {
            say(&format_args!("internal error: {what}: {error}"));
            FailureClass::Internal.exit_code()
        }
        Err(Refused::DryRun(text)) => print(&text),
    }
}

/// Why no guest was started.
enum Refused {
    Config(ConfigError),
    System(&'static str, io::Error),
    /// It was not asked for; what to print instead.
    DryRun(String),
}

impl From<ConfigError> for Refused {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

fn try_run(args: RunArgs, exec: Instant) -> Result<Verdict, Refused> {
    let loaded = Loaded::from_file(&args.source.config, &overrides(&args))?;
    for warning in &loaded.warnings {
        log::warn!("{warning}");
    }
    loaded.check_named_files()?;
    let config = &loaded.config;
    let results_file = results_file(&loaded)?;
    if args.dry_run {
        // What a run would open, and leave as it is.
        drop(bind_socket(&loaded)?);
        check_console_file(&loaded)?;
        return Err(Refused::DryRun(config.to_toml()));
    }
    let stop = stop_signals::catch().map_err(|error| Refused::System("signal handlers", error))?;
    // Before the console's file is emptied: it may be that of a VM which runs.
    let (server, control) = control(&loaded)?;
    let output = console_output(&loaded)?;
    let raw = raw_terminal(config);
    let io = RunIo {
        output,
        input: console_input(config).map_err(|error| Refused::System("stdin", error))?,
        stop,
        control,
        exec,
    };
    let options = HostOptions {
        host_kernel: config.host.kernel.clone(),
        ..HostOptions::default()
    };
    let results = host::run(config, args.host.into(), &options, io);
    drop(raw);
    drop(server);
    Ok(written(results, results_file))
}

fn overrides(args: &RunArgs) -> Overrides {
    let paths = [
        ("host.kernel", "--host-kernel", &args.host_kernel),
        ("results.path", "--results", &args.results),
    ];
    Overrides {
        sets: args.source.set.clone(),
        paths: paths
            .into_iter()
            .filter_map(|(key, flag, path)| Some((key, flag, path.clone()?)))
            .collect(),
    }
}

fn results_file(loaded: &Loaded) -> Result<Option<ResultsFile>, ConfigError> {
    let Some(path) = &loaded.config.results.path else {
        return Ok(None);
    };
    ResultsFile::create(path)
        .map(Some)
        .map_err(|error| not_writable(loaded, "results.path", path, &error))
}

fn console_output(loaded: &Loaded) -> Result<Box<dyn io::Write + Send>, Refused> {
    Ok(match &loaded.config.console.output {
        // The descriptor itself: std's own stdout would hold back partial lines.
        ConsoleOutput::Stdout => Box::new(File::from(
            io::stdout()
                .as_fd()
                .try_clone_to_owned()
                .map_err(|error| Refused::System("stdout", error))?,
        )),
        ConsoleOutput::None => Box::new(io::sink()),
        ConsoleOutput::File(path) => Box::new(
            named_pipe::open(
                OpenOptions::new().write(true).create(true).truncate(true),
                path,
            )
            .map_err(|error| not_writable(loaded, "console.output.file", path, &error))?,
        ),
    })
}

/// Whether the console could be written, without writing or leaving anything.
fn check_console_file(loaded: &Loaded) -> Result<(), ConfigError> {
    let ConsoleOutput::File(path) = &loaded.config.console.output else {
        return Ok(());
    };
    let mut options = OpenOptions::new();
    options.write(true);
    let tried = match fs::metadata(path) {
        // Whoever reads a pipe would take it for the end.
        Ok(found) if found.file_type().is_fifo() => Ok(()),
        Ok(_) => named_pipe::open(&mut options, path).map(drop),
        Err(error) if error.kind() == io::ErrorKind::NotFound => options
            .create_new(true)
            .open(path)
            .and_then(|_| fs::remove_file(path)),
        Err(error) => Err(error),
    };
    tried.map_err(|error| not_writable(loaded, "console.output.file", path, &error))
}

/// The control socket and the VM's end of it, where they are wanted. A VM in an
/// emulated host has its end only.
fn control(loaded: &Loaded) -> Result<(Option<ControlServer>, Option<ControlPort>), Refused> {
    let pipes = std::env::var(PIPES_VARIABLE);
    if let (HostKind::Emulated, Ok(value)) = (native::kind(), pipes) {
        let port = pipes::open(&value).map_err(|error| Refused::System("control", error))?;
        return Ok((None, Some(port)));
    }
    let Some(socket) = bind_socket(loaded)? else {
        return Ok((None, None));
    };
    let (server, port) =
        ControlServer::start(socket).map_err(|error| Refused::System("control socket", error))?;
    if let Some(path) = &loaded.config.control.socket {
        log::info!("controlled through {}", path.display());
    }
    Ok((Some(server), Some(port)))
}

fn bind_socket(loaded: &Loaded) -> Result<Option<ControlSocket>, ConfigError> {
    let Some(path) = &loaded.config.control.socket else {
        return Ok(None);
    };
    ControlSocket::bind(path)
        .map(Some)
        .map_err(|error| match error {
            SocketError::Io(error) => not_writable(loaded, "control.socket", path, &error),
            _ => loaded.named_file_error("control.socket", path, error.to_string()),
        })
}

fn not_writable(loaded: &Loaded, key: &'static str, path: &Path, error: &io::Error) -> ConfigError {
    let reason = match error.kind() {
        io::ErrorKind::NotFound => "cannot be written: no such directory".to_owned(),
        io::ErrorKind::PermissionDenied => "cannot be written: permission denied".to_owned(),
        io::ErrorKind::IsADirectory => "cannot be written: is a directory".to_owned(),
        _ => format!("cannot be written: {error}"),
    };
    loaded.named_file_error(key, path, reason)
}

fn console_input(config: &Config) -> io::Result<Option<File>> {
    if !config.console.input {
        return Ok(None);
    }
    Ok(Some(File::from(io::stdin().as_fd().try_clone_to_owned()?)))
}

/// Raw only where a person types to the guest and sees what it answers.
fn raw_terminal(config: &Config) -> Option<RawTerminal> {
    if !config.console.input || !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return None;
    }
    match RawTerminal::enter(io::stdin()) {
        Ok(raw) => {
            log::info!("keys go to the guest, Ctrl-C too; Ctrl-] stops it");
            Some(raw)
        }
        Err(error) => {
            log::warn!("the terminal stays as it is: {error}");
            None
        }
    }
}

/// Writes the results where they are wanted. A run that went well and whose
/// results are lost did not go well.
fn written(results: RunResults, file: Option<ResultsFile>) -> Verdict {
    let Some(file) = file else {
        return results.verdict;
    };
    let written = results
        .to_json()
        .map_err(io::Error::from)
        .and_then(|document| file.write(&document));
    match written {
        Ok(()) => results.verdict,
        Err(error) => {
            let message = format!("the results could not be written: {error}");
            if results.verdict == Verdict::Success {
                Verdict::Failed {
                    class: FailureClass::Internal,
                    message,
                }
            } else {
                log::error!("{message}");
                results.verdict
            }
        }
    }
}
