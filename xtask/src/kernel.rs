use crate::Failure;
use std::path::PathBuf;
#[derive(clap::Args, Default)]
pub(crate) struct Options {}
pub(crate) struct Paths {
    pub(crate) bzimage: PathBuf,
    pub(crate) vmlinux: PathBuf,
}
pub(crate) fn build(_o: &Options) -> Result<Paths, Failure> {
    Ok(Paths {
        bzimage: "/tmp/kimg/bzImage".into(),
        vmlinux: "/tmp/kimg/vmlinux".into(),
    })
}
pub(crate) fn run(_o: &Options) -> Result<(), Failure> {
    Ok(())
}
