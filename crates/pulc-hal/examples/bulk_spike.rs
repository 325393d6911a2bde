//! Measures ways to move a message between two cores through shared memory: the table of `docs/adr/0002`. Run it on a quiet
//! machine with `cargo run --release -p pulc-hal --example bulk_spike [message KiB …]`. Not part of the product.
//!
//! Two threads pinned to two cores play ping-pong with one message in flight ("lone") or stream messages one way. Every
//! design moves the same private source to the same private destination. Figures are GB/s one way, best and median of the
//! rounds.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

#[cfg(not(target_arch = "x86_64"))]
fn main() {
    println!("this spike compares x86-64 copy kernels; nothing to measure here");
}

#[cfg(target_arch = "x86_64")]
fn main() {
    use pulc_hal::os::cpu;
    let cores = cpu::allowed_cores().expect("the cores of this process are known");
    if cores.len() < 2 {
        println!("two cores are needed");
        return;
    }
    let sizes: Vec<usize> = std::env::args().skip(1).filter_map(|text| text.parse().ok()).collect();
    let sizes = if sizes.is_empty() { vec![64, 1024] } else { sizes };
    println!("caches: {:?}; hop and memcpy first, every line: best / median GB/s over the rounds", cpu::caches());
    println!("raw cache-line hop, one way: {:.0} ns", spike::hop(cores[0], cores[1]));
    for kib in sizes {
        spike::message(kib << 10, cores[0], cores[1]);
    }
}

#[cfg(target_arch = "x86_64")]
mod spike {
    use super::*;
    use pulc_hal::os::cpu;

    const ROUNDS: usize = 7;

    #[derive(Clone, Copy, PartialEq, Debug)]
    pub enum Kernel {
        Movsb,
        Avx2,
        /// Streaming stores.
        NonTemporal,
        /// Ordinary stores, each line written back at once.
        Clwb,
        /// AVX2 with the source prefetched so many bytes ahead.
        Ahead(usize),
        /// AVX2 with the destination prefetched for writing.
        AheadW(usize),
    }

    #[derive(Clone, Copy)]
    pub struct Ring {
        pub bytes: usize,
        pub chunk: usize,
        pub fill: Kernel,
        pub drain: Kernel,
        /// Begin and end with small chunks, so that the two cores overlap sooner and longer.
        pub ramp: bool,
        /// Write the source anew before each send.
        pub touch_source: bool,
    }

    /// # Safety
    /// As for `copy_nonoverlapping`; `len` is a multiple of 128; AVX2 exists.
    #[inline(always)]
    unsafe fn copy(kernel: Kernel, to: *mut u8, from: *const u8, len: usize) {
        use std::arch::asm;
        // SAFETY: each loop touches exactly the two ranges of the caller.
        unsafe {
            match kernel {
                Kernel::Movsb => asm!("rep movsb", inout("rcx") len => _, inout("rdi") to => _, inout("rsi") from => _,
                    options(nostack, preserves_flags)),
                Kernel::Avx2 => asm!("2:",
                    "vmovdqu ymm0, [rsi]", "vmovdqu ymm1, [rsi+32]", "vmovdqu ymm2, [rsi+64]", "vmovdqu ymm3, [rsi+96]",
                    "vmovdqu [rdi], ymm0", "vmovdqu [rdi+32], ymm1", "vmovdqu [rdi+64], ymm2", "vmovdqu [rdi+96], ymm3",
                    "add rsi, 128", "add rdi, 128", "sub rcx, 128", "jnz 2b", "vzeroupper",
                    inout("rcx") len => _, inout("rdi") to => _, inout("rsi") from => _,
                    out("ymm0") _, out("ymm1") _, out("ymm2") _, out("ymm3") _, options(nostack)),
                Kernel::NonTemporal => asm!("2:",
                    "vmovdqu ymm0, [rsi]", "vmovdqu ymm1, [rsi+32]", "vmovdqu ymm2, [rsi+64]", "vmovdqu ymm3, [rsi+96]",
                    "vmovntdq [rdi], ymm0", "vmovntdq [rdi+32], ymm1", "vmovntdq [rdi+64], ymm2", "vmovntdq [rdi+96], ymm3",
                    "add rsi, 128", "add rdi, 128", "sub rcx, 128", "jnz 2b", "sfence", "vzeroupper",
                    inout("rcx") len => _, inout("rdi") to => _, inout("rsi") from => _,
                    out("ymm0") _, out("ymm1") _, out("ymm2") _, out("ymm3") _, options(nostack)),
                Kernel::Clwb => asm!("2:",
                    "vmovdqu ymm0, [rsi]", "vmovdqu ymm1, [rsi+32]", "vmovdqu ymm2, [rsi+64]", "vmovdqu ymm3, [rsi+96]",
                    "vmovdqu [rdi], ymm0", "vmovdqu [rdi+32], ymm1", "clwb [rdi]",
                    "vmovdqu [rdi+64], ymm2", "vmovdqu [rdi+96], ymm3", "clwb [rdi+64]",
                    "add rsi, 128", "add rdi, 128", "sub rcx, 128", "jnz 2b", "vzeroupper",
                    inout("rcx") len => _, inout("rdi") to => _, inout("rsi") from => _,
                    out("ymm0") _, out("ymm1") _, out("ymm2") _, out("ymm3") _, options(nostack)),
                Kernel::Ahead(distance) => asm!("2:",
                    "prefetcht0 [rsi+{d}]", "prefetcht0 [rsi+{d}+64]",
                    "vmovdqu ymm0, [rsi]", "vmovdqu ymm1, [rsi+32]", "vmovdqu ymm2, [rsi+64]", "vmovdqu ymm3, [rsi+96]",
                    "vmovdqu [rdi], ymm0", "vmovdqu [rdi+32], ymm1", "vmovdqu [rdi+64], ymm2", "vmovdqu [rdi+96], ymm3",
                    "add rsi, 128", "add rdi, 128", "sub rcx, 128", "jnz 2b", "vzeroupper", d = in(reg) distance,
                    inout("rcx") len => _, inout("rdi") to => _, inout("rsi") from => _,
                    out("ymm0") _, out("ymm1") _, out("ymm2") _, out("ymm3") _, options(nostack)),
                Kernel::AheadW(distance) => asm!("2:",
                    "prefetchw [rdi+{d}]", "prefetchw [rdi+{d}+64]",
                    "vmovdqu ymm0, [rsi]", "vmovdqu ymm1, [rsi+32]", "vmovdqu ymm2, [rsi+64]", "vmovdqu ymm3, [rsi+96]",
                    "vmovdqu [rdi], ymm0", "vmovdqu [rdi+32], ymm1", "vmovdqu [rdi+64], ymm2", "vmovdqu [rdi+96], ymm3",
                    "add rsi, 128", "add rdi, 128", "sub rcx, 128", "jnz 2b", "vzeroupper", d = in(reg) distance,
                    inout("rcx") len => _, inout("rdi") to => _, inout("rsi") from => _,
                    out("ymm0") _, out("ymm1") _, out("ymm2") _, out("ymm3") _, options(nostack)),
            }
        }
    }

    /// Page-aligned bytes that two threads share by address.
    struct Area {
        base: *mut u8,
        layout: std::alloc::Layout,
    }

    // SAFETY: handed between threads by the flags below.
    unsafe impl Sync for Area {}

    impl Area {
        fn new(bytes: usize) -> Area {
            let layout = std::alloc::Layout::from_size_align(bytes, 4096).expect("a plain size");
            // SAFETY: the layout is not empty; the whole area is written once so that its pages exist.
            let base = unsafe { std::alloc::alloc(layout) };
            // SAFETY: freshly allocated with this size.
            unsafe { base.write_bytes(1, bytes) };
            Area { base, layout }
        }
    }

    impl Drop for Area {
        fn drop(&mut self) {
            // SAFETY: allocated with this layout.
            unsafe { std::alloc::dealloc(self.base, self.layout) }
        }
    }

    /// Pins this thread and waits, blocked, until its partner has done the same.
    fn start_on(core: u32) {
        static BOTH: std::sync::Barrier = std::sync::Barrier::new(2);
        cpu::pin_to(&[core]).expect("a core of this process");
        BOTH.wait();
    }

    #[repr(align(128))]
    struct Word(AtomicU64);

    fn words(count: usize) -> Vec<Word> {
        (0..count).map(|_| Word(AtomicU64::new(0))).collect()
    }

    fn wait(word: &Word, value: u64) {
        while word.0.load(Ordering::Acquire) < value {}
    }

    pub fn hop(a: u32, b: u32) -> f64 {
        let (ping, pong) = (Word(AtomicU64::new(0)), Word(AtomicU64::new(0)));
        const N: u64 = 2_000;
        let mut best = f64::MAX;
        for round in 0..ROUNDS as u64 {
            let base = round * N;
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    start_on(b);
                    for i in 1..=N {
                        wait(&ping, base + i);
                        pong.0.store(base + i, Ordering::Release);
                    }
                });
                start_on(a);
                let start = Instant::now();
                for i in 1..=N {
                    ping.0.store(base + i, Ordering::Release);
                    wait(&pong, base + i);
                }
                best = best.min(start.elapsed().as_nanos() as f64 / N as f64 / 2.0);
            });
        }
        best
    }

    /// One line; the hop beside it tells whether the host had put the two cores near to each other.
    fn show(name: &str, mut rates: Vec<f64>, hop_ns: f64) {
        rates.sort_by(f64::total_cmp);
        println!("  {name:<66} {:6.1} / {:5.1}   (hop {hop_ns:.0} ns)", rates[rates.len() - 1], rates[rates.len() / 2]);
    }

    /// Offsets and lengths of the chunks of a message.
    fn plan(bytes: usize, chunk: usize, ramp: bool) -> Vec<(usize, usize)> {
        let mut plan = Vec::new();
        let mut at = 0;
        while at < bytes {
            let left = bytes - at;
            let len = if ramp { (at + 4096).min(left.div_ceil(2).next_multiple_of(4096)).min(chunk) } else { chunk };
            plan.push((at, len.min(left)));
            at += len.min(left);
        }
        plan
    }

    pub fn message(bytes: usize, a: u32, b: u32) {
        println!("message of {} KiB", bytes >> 10);
        let (from, to) = (Area::new(bytes), Area::new(bytes));
        for kernel in [Kernel::Movsb, Kernel::Avx2] {
            let repeats = (64 << 20) / bytes;
            let rates = (0..ROUNDS)
                .map(|_| {
                    let start = Instant::now();
                    for _ in 0..repeats {
                        // SAFETY: two private areas of this size.
                        unsafe { copy(kernel, to.base, from.base, bytes) };
                    }
                    (repeats * bytes) as f64 / start.elapsed().as_nanos() as f64
                })
                .collect();
            show(&format!("memcpy in one core, {kernel:?}"), rates, hop(a, b));
        }
        let plain = |bytes, chunk| Ring {
            bytes,
            chunk,
            fill: Kernel::Avx2,
            drain: Kernel::Avx2,
            ramp: false,
            touch_source: false,
        };
        for pool in [64 << 10, 256 << 10, 1 << 20, 2 << 20, 4 << 20] {
            for chunk in [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10] {
                ring(bytes, plain(pool, chunk), a, b);
            }
        }
        for chunk in [8 << 10, 16 << 10] {
            let base = plain(2 << 20, chunk);
            ring(bytes, Ring { fill: Kernel::Movsb, drain: Kernel::Movsb, ..base }, a, b);
            ring(bytes, Ring { fill: Kernel::NonTemporal, ..base }, a, b);
            ring(bytes, Ring { fill: Kernel::Clwb, ..base }, a, b);
            ring(bytes, Ring { drain: Kernel::Ahead(512), ..base }, a, b);
            ring(bytes, Ring { drain: Kernel::Ahead(2048), ..base }, a, b);
            ring(bytes, Ring { fill: Kernel::AheadW(512), ..base }, a, b);
            ring(bytes, Ring { fill: Kernel::AheadW(1024), drain: Kernel::Ahead(1024), ..base }, a, b);
            ring(bytes, Ring { ramp: true, ..base }, a, b);
            ring(bytes, Ring { ramp: true, fill: Kernel::Movsb, drain: Kernel::Movsb, ..base }, a, b);
            ring(bytes, Ring { touch_source: true, ..base }, a, b);
            ring(bytes, Ring { touch_source: true, ramp: true, ..base }, a, b);
            ring(bytes, Ring { touch_source: true, fill: Kernel::NonTemporal, ..base }, a, b);
        }
        ring(bytes, Ring { ramp: true, ..plain(1 << 20, 16 << 10) }, a, b);
        ring(bytes, Ring { ramp: true, ..plain(2 << 20, 32 << 10) }, a, b);
        for touch in [false, true] {
            single(bytes, Single::Mapped(Kernel::Avx2), touch, a, b);
            single(bytes, Single::Mapped(Kernel::Movsb), touch, a, b);
            single(bytes, Single::Mapped(Kernel::Ahead(1024)), touch, a, b);
            single(bytes, Single::VmReadv, touch, a, b);
        }
    }

    /// Two copies through a ring of chunks; per direction one ring.
    fn ring(bytes: usize, ring: Ring, a: u32, b: u32) {
        if ring.chunk > ring.bytes || ring.chunk > bytes {
            return;
        }
        let slots = ring.bytes / ring.chunk;
        let plan = plan(bytes, ring.chunk, ring.ramp);
        let rings = [Area::new(ring.bytes), Area::new(ring.bytes)];
        let full = [words(slots), words(slots)];
        let free = [words(slots), words(slots)];
        let repeats = ((32 << 20) / bytes).max(8);
        let end = |core: u32, out: usize, first: bool| {
            start_on(core);
            let (from, to) = (Area::new(bytes), Area::new(bytes));
            let (mut sent, mut got) = (0usize, 0usize);
            let filling = std::cell::Cell::new(0);
            let mut send = || {
                if ring.touch_source {
                    // SAFETY: private area of this size.
                    unsafe { from.base.write_bytes(sent as u8, bytes) };
                }
                for &(at, len) in &plan {
                    let slot = sent % slots;
                    let lap = (sent / slots) as u64;
                    wait(&free[out][slot], lap);
                    let start = Instant::now();
                    // SAFETY: the slot is ours until it is flagged full.
                    unsafe { copy(ring.fill, rings[out].base.add(slot * ring.chunk), from.base.add(at), len) };
                    filling.set(filling.get() + start.elapsed().as_nanos());
                    full[out][slot].0.store(lap + 1, Ordering::Release);
                    sent += 1;
                }
            };
            let mut receive = || {
                for &(at, len) in &plan {
                    let slot = got % slots;
                    let lap = (got / slots) as u64;
                    wait(&full[1 - out][slot], lap + 1);
                    // SAFETY: the slot is full and stays so until it is flagged free.
                    unsafe { copy(ring.drain, to.base.add(at), rings[1 - out].base.add(slot * ring.chunk), len) };
                    free[1 - out][slot].0.store(lap + 1, Ordering::Release);
                    got += 1;
                }
            };
            let rates = (0..ROUNDS)
                .map(|_| {
                    let start = Instant::now();
                    for _ in 0..repeats {
                        if first {
                            send();
                            receive();
                        } else {
                            receive();
                            send();
                        }
                    }
                    (2 * repeats * bytes) as f64 / start.elapsed().as_nanos() as f64
                })
                .collect::<Vec<f64>>();
            (rates, (ROUNDS * repeats * bytes) as f64 / filling.get() as f64)
        };
        let (rates, fill_rate) = std::thread::scope(|scope| {
            scope.spawn(|| end(b, 1, false));
            end(a, 0, true)
        });
        let name = format!(
            "two copies, pool {:4} K, chunk {:2} K{}, {:?} (fill {fill_rate:.0}) -> {:?}{}",
            ring.bytes >> 10,
            ring.chunk >> 10,
            if ring.ramp { " ramp" } else { "" },
            ring.fill,
            ring.drain,
            if ring.touch_source { ", fresh source" } else { "" }
        );
        show(&name, rates, hop(a, b));
    }

    #[derive(Clone, Copy, Debug)]
    enum Single {
        Mapped(Kernel),
        VmReadv,
    }

    /// One copy, straight out of the sender's memory.
    fn single(bytes: usize, how: Single, touch: bool, a: u32, b: u32) {
        let sources = [Area::new(bytes), Area::new(bytes)];
        let (full, free) = (words(2), words(2));
        let repeats = ((32 << 20) / bytes).max(8);
        let end = |core: u32, out: usize, first: bool| {
            start_on(core);
            let to = Area::new(bytes);
            let (mut sent, mut got) = (0u64, 0u64);
            let mut send = || {
                wait(&free[out], sent);
                if touch {
                    // SAFETY: the other side has given it back.
                    unsafe { sources[out].base.write_bytes(sent as u8, bytes) };
                }
                sent += 1;
                full[out].0.store(sent, Ordering::Release);
            };
            let mut receive = || {
                got += 1;
                wait(&full[1 - out], got);
                match how {
                    // SAFETY: both areas have this size; the source does not change until it is flagged free.
                    Single::Mapped(kernel) => unsafe { copy(kernel, to.base, sources[1 - out].base, bytes) },
                    Single::VmReadv => {
                        let local = libc::iovec { iov_base: to.base.cast(), iov_len: bytes };
                        let remote = libc::iovec { iov_base: sources[1 - out].base.cast(), iov_len: bytes };
                        // SAFETY: both areas have this size.
                        let read = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
                        assert_eq!(read, bytes as isize, "process_vm_readv is not permitted here");
                    }
                }
                free[1 - out].0.store(got, Ordering::Release);
            };
            (0..ROUNDS)
                .map(|_| {
                    let start = Instant::now();
                    for _ in 0..repeats {
                        if first {
                            send();
                            receive();
                        } else {
                            receive();
                            send();
                        }
                    }
                    (2 * repeats * bytes) as f64 / start.elapsed().as_nanos() as f64
                })
                .collect::<Vec<f64>>()
        };
        let rates = std::thread::scope(|scope| {
            scope.spawn(|| end(b, 1, false));
            end(a, 0, true)
        });
        let source = if touch { "source written before each send" } else { "source unchanged" };
        show(&format!("one copy, {how:?}, {source}"), rates, hop(a, b));
    }
}
