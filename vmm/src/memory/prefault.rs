//! Populating guest RAM before the guest runs, on several threads.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use vm_memory::{GuestMemoryBackend, GuestMemoryMmap};

use super::host_nodes;
use super::piece::{Advice, Piece};
use crate::results::Prefault;

/// Least work for a thread, and what it takes at a time: large enough that
/// nothing but clearing counts, small enough that threads end together.
const CHUNK_BYTES: usize = 64 << 20;

/// Populates all of `memory`, whose backing page is `page` bytes, for writing.
/// `resident` bytes of it are there already and are not counted as work.
///
/// `threads` is one per online CPU if `None`; it is never more than one per
/// [`CHUNK_BYTES`]. On a host with several NUMA nodes the threads are spread
/// over them in turn and stay there, so that each clears, and by default
/// allocates, close by. All start together, and the time is taken from then.
///
/// # Errors
/// That of the first chunk that failed; chunks not begun are left out. The same
/// when `give_up`, asked before each chunk, says so.
pub(super) fn populate(
    memory: &GuestMemoryMmap,
    page: usize,
    resident: u64,
    threads: Option<u16>,
    give_up: &(dyn Fn() -> bool + Sync),
) -> io::Result<Prefault> {
    let chunk = CHUNK_BYTES.max(page);
    let chunks: Vec<Piece<'_>> = memory
        .iter()
        .map(Piece::whole)
        .flat_map(|region| {
            (0..region.len())
                .step_by(chunk)
                .filter_map(move |start| region.part(start, start.saturating_add(chunk)))
        })
        .collect();
    let wanted = match threads {
        Some(threads) => usize::from(threads.max(1)),
        None => thread::available_parallelism().map_or(1, usize::from),
    };
    let work = Work {
        next: AtomicUsize::new(0),
        failed: AtomicBool::new(false),
        chunks: &chunks,
        give_up,
    };
    let gate = Gate::default();
    let nodes = host_nodes::cpus_by_node();
    let (work, gate) = (&work, &gate);

    let (started, results) = thread::scope(|scope| {
        let workers: Vec<_> = (0..wanted.min(chunks.len()))
            .map_while(|number| {
                let cpus = match nodes.len() {
                    0 | 1 => None,
                    count => nodes.get(number % count).cloned(),
                };
                let worker = move || {
                    if let Some(cpus) = cpus {
                        host_nodes::stay_on(&cpus);
                    }
                    gate.wait();
                    work.populate_chunks()
                };
                // With fewer threads than wanted it only takes longer.
                thread::Builder::new()
                    .name(format!("prefault{number}"))
                    .spawn_scoped(scope, worker)
                    .ok()
            })
            .collect();
        let started = Instant::now();
        gate.open();
        let mut results: Vec<io::Result<()>> = workers
            .into_iter()
            .map(|worker| {
                worker
                    .join()
                    .unwrap_or_else(|_| Err(io::Error::other("thread panicked")))
            })
            .collect();
        if results.is_empty() {
            results.push(work.populate_chunks());
        }
        (started, results)
    });
    let seconds = started.elapsed().as_secs_f64();
    let used = u16::try_from(results.len()).unwrap_or(u16::MAX);
    results.into_iter().collect::<io::Result<()>>()?;

    let size: u64 = chunks.iter().map(|chunk| chunk.len() as u64).sum();
    let bytes = size.saturating_sub(resident);
    Ok(Prefault {
        bytes,
        threads: used,
        ms: seconds * 1e3,
        // Precise enough: sizes are far below 2^53 bytes.
        gib_per_s: bytes as f64 / f64::from(1 << 30) / seconds,
    })
}

struct Work<'a> {
    next: AtomicUsize,
    failed: AtomicBool,
    chunks: &'a [Piece<'a>],
    give_up: &'a (dyn Fn() -> bool + Sync),
}

impl Work<'_> {
    fn populate_chunks(&self) -> io::Result<()> {
        while !self.failed.load(Ordering::Relaxed) {
            let Some(chunk) = self.chunks.get(self.next.fetch_add(1, Ordering::Relaxed)) else {
                break;
            };
            let done = match (self.give_up)() {
                true => Err(io::Error::other("it was given up")),
                false => chunk.advise(Advice::PopulateWrite),
            };
            done.inspect_err(|_| self.failed.store(true, Ordering::Relaxed))?;
        }
        Ok(())
    }
}

/// Closed until opened, once.
#[derive(Default)]
struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn wait(&self) {
        let guard = self.is_open.lock().unwrap_or_else(PoisonError::into_inner);
        drop(
            self.opened
                .wait_while(guard, |is_open| !*is_open)
                .unwrap_or_else(PoisonError::into_inner),
        );
    }

    fn open(&self) {
        *self.is_open.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.opened.notify_all();
    }
}
