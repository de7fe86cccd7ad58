use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

/// A directory of its own for one test.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("aerostat-socket-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn message(path: &Path) -> String {
    ControlSocket::bind(path)
        .map(drop)
        .expect_err("a refusal")
        .to_string()
}

#[test]
fn a_socket_is_its_owners_only_and_goes_with_its_owner() {
    let directory = Directory::new();
    let path = directory.join("vm.sock");
    let socket = ControlSocket::bind(&path).unwrap();
    let mode = fs::symlink_metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o600, "without a chmod behind its making");
    connect_to(&path).unwrap();
    drop(socket);
    assert!(!path.exists());
}

#[test]
fn a_socket_somebody_listens_to_is_not_taken() {
    let directory = Directory::new();
    let path = directory.join("vm.sock");
    let first = ControlSocket::bind(&path).unwrap();
    assert_eq!(
        message(&path),
        "another VM is listening there; name another socket"
    );
    // Not even if it has no room for one more.
    let waiting: Vec<_> = (0..64).map_while(|_| connect_to(&path).ok()).collect();
    assert!(waiting.len() < 64, "the queue has an end");
    assert!(matches!(ControlSocket::bind(&path), Err(SocketError::Live)));
    drop(first);
}

#[test]
fn a_socket_nobody_listens_to_is_replaced() {
    let directory = Directory::new();
    let path = directory.join("vm.sock");
    // Closing a listener leaves its file behind, as a killed VM does.
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let socket = ControlSocket::bind(&path).unwrap();
    connect_to(&path).unwrap();
    drop(socket);
}

#[test]
fn what_is_no_socket_is_left_alone() {
    let directory = Directory::new();
    let (file, link) = (directory.join("file"), directory.join("link"));
    fs::write(&file, "precious").unwrap();
    let target = directory.join("vm.sock");
    drop(UnixListener::bind(&target).unwrap());
    symlink(&target, &link).unwrap();
    let dangling = directory.join("dangling");
    symlink(directory.join("nowhere"), &dangling).unwrap();
    for path in [&file, &link, &dangling, &directory.0] {
        assert_eq!(
            message(path),
            "is there already and no socket; remove it or name another path",
            "{path:?}"
        );
        fs::symlink_metadata(path).expect("still there");
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "precious");
}

#[test]
fn a_path_that_cannot_be_is_refused() {
    let directory = Directory::new();
    let long = directory.join(&"x".repeat(108));
    assert!(message(&long).starts_with("is longer than 107 bytes"));
    let nowhere = directory.join("no/vm.sock");
    assert!(message(&nowhere).contains("No such file"));
}

#[test]
fn of_many_that_find_a_dead_socket_one_replaces_it() {
    let directory = std::env::temp_dir().join(format!("sockets-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.join("s");
    for _ in 0..200 {
        let _ = std::fs::remove_file(&path);
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let start = std::sync::Barrier::new(4);
        let bound: Vec<_> = std::thread::scope(|scope| {
            let bind = || {
                start.wait();
                ControlSocket::bind(&path)
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(bind)).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        assert_eq!(bound.iter().filter(|bound| bound.is_ok()).count(), 1);
    }
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn a_socket_that_took_the_place_is_not_removed() {
    let directory = Directory::new();
    let path = directory.join("vm.sock");
    let first = ControlSocket::bind(&path).unwrap();
    fs::remove_file(&path).unwrap();
    let second = ControlSocket::bind(&path).unwrap();
    drop(first);
    assert!(path.exists(), "it is another's now");
    drop(second);
    assert!(!path.exists());
}
