//! Messages and collectives between real ranks; run by the tests of the command line. Each check says what it found.

use pulc_mpi::call;
use pulc_mpi::consts::*;
use pulc_mpi::handle::*;
use pulc_mpi::memory::{Addr, Ints};

fn addr<T>(values: &mut [T]) -> Addr {
    // SAFETY: every buffer of this program outlives the operation that uses it, and nothing else touches it meanwhile.
    unsafe { Addr::new(values.as_mut_ptr().cast()) }
}
const INT: Datatype = Datatype(0x4c00_0405);
const SUM: Op = Op(0x5800_0003);

fn main() {
    call::init_thread(THREAD_MULTIPLE).unwrap();
    let w = Comm::WORLD;
    let (me, n) = (call::comm_rank(w).unwrap(), call::comm_size(w).unwrap());
    let mut one = [me * 10];
    let (right, left) = ((me + 1) % n, (me + n - 1) % n);
    let mut got = [0];
    let s = call::sendrecv(addr(&mut one), 1, INT, right, 5, addr(&mut got), 1, INT, left, 5, w).unwrap();
    assert_eq!((got[0], s.source, s.tag, s.bytes), (left * 10, left, 5, 4));
    // Long ones, both send first.
    for len in [100usize, 10_000, 100_000, 3_000_000] {
        let mut out = vec![me; len];
        let mut into = vec![-1; len];
        let mut all = [call::isend(addr(&mut out), len as i64, INT, right, 1, w).unwrap(),
            call::irecv(addr(&mut into), len as i64, INT, ANY_SOURCE, ANY_TAG, w).unwrap()];
        call::waitall(&mut all, &mut |_, _| {}).unwrap();
        assert!(into.iter().all(|v| *v == left), "len {len}");
        assert_eq!(all, [Request::NULL; 2]);
        call::barrier(w).unwrap();
    }
    // Unexpected, out of order, ssend.
    if n > 1 {
        if me == 0 {
            for tag in 0..5 { let mut v = [tag]; call::send(addr(&mut v), 1, INT, 1, tag, w).unwrap(); }
            let mut big = vec![7; 50_000];
            call::ssend(addr(&mut big), 50_000, INT, 1, 9, w).unwrap();
        } else if me == 1 {
            let st = call::probe(0, 9, w).unwrap();
            assert_eq!(st.bytes, 200_000);
            let mut big = vec![0; 50_000];
            call::recv(addr(&mut big), 50_000, INT, 0, 9, w).unwrap();
            for tag in (0..5).rev() {
                let mut v = [-1];
                call::recv(addr(&mut v), 1, INT, ANY_SOURCE, tag, w).unwrap();
                assert_eq!(v[0], tag);
            }
        }
    }
    for count in [1usize, 1000, 30_000] {
        let mut a: Vec<i32> = (0..count as i32).map(|i| i + me).collect();
        let mut b = vec![0; count];
        call::allreduce(addr(&mut a), addr(&mut b), count as i64, INT, SUM, w).unwrap();
        for (i, v) in b.iter().enumerate() { assert_eq!(*v, n * i as i32 + n * (n - 1) / 2, "allreduce {count}"); }
        for root in 0..n {
            let mut c = vec![0; count];
            call::reduce(addr(&mut a), addr(&mut c), count as i64, INT, SUM, root, w).unwrap();
            if me == root { assert_eq!(b, c); }
            let mut d = if me == root { vec![root + 3; count] } else { vec![0; count] };
            call::bcast(addr(&mut d), count as i64, INT, root, w).unwrap();
            assert!(d.iter().all(|v| *v == root + 3));
        }
    }
    let mut all = vec![0; n as usize];
    call::allgather(addr(&mut one), 1, INT, addr(&mut all), 1, INT, w).unwrap();
    assert_eq!(all, (0..n).map(|r| r * 10).collect::<Vec<_>>());
    let mut out: Vec<i32> = (0..n).map(|r| me * 100 + r).collect();
    let mut into = vec![0; n as usize];
    call::alltoall(addr(&mut out), 1, INT, addr(&mut into), 1, INT, w).unwrap();
    assert_eq!(into, (0..n).map(|r| r * 100 + me).collect::<Vec<_>>());
    let mut s = [0];
    call::scan(addr(&mut [me]), addr(&mut s), 1, INT, SUM, w).unwrap();
    assert_eq!(s[0], me * (me + 1) / 2);
    // Communicators.
    let dup = call::comm_dup(w).unwrap();
    assert_eq!(call::comm_compare(w, dup).unwrap(), CONGRUENT);
    let mut half = call::comm_split(dup, me % 2, -me).unwrap();
    let (hm, hn) = (call::comm_rank(half).unwrap(), call::comm_size(half).unwrap());
    let mut x = [0];
    call::allreduce(addr(&mut [me]), addr(&mut x), 1, INT, SUM, half).unwrap();
    assert_eq!(x[0], (0..n).filter(|r| r % 2 == me % 2).sum::<i32>());
    assert!(hm < hn);
    if n > 1 {
        let inter = call::intercomm_create(half, 0, w, if me % 2 == 0 { (n - 1) - (n % 2) } else { n - 1 - ((n - 1) % 2) }, 3).unwrap();
        assert!(call::comm_test_inter(inter).unwrap());
        let mut y = [0];
        call::allreduce(addr(&mut [me]), addr(&mut y), 1, INT, SUM, inter).unwrap();
        assert_eq!(y[0], (0..n).filter(|r| r % 2 != me % 2).sum::<i32>());
        call::barrier(inter).unwrap();
        let mut merged = call::intercomm_merge(inter, me % 2 == 1).unwrap();
        assert_eq!(call::comm_size(merged).unwrap(), n);
        call::barrier(merged).unwrap();
        call::comm_free(&mut merged).unwrap();
        let mut inter = inter;
        call::comm_free(&mut inter).unwrap();
    }
    call::comm_free(&mut half).unwrap();
    // Nonblocking and persistent.
    let mut r = vec![0; 4];
    let mut rq = [call::iallreduce(addr(&mut [me; 4]), addr(&mut r), 4, INT, SUM, w).unwrap(), call::ibarrier(w).unwrap()];
    call::waitall(&mut rq, &mut |_, _| {}).unwrap();
    let mut p = call::recv_init(addr(&mut got), 1, INT, left, 8, w).unwrap();
    let mut q = call::send_init(addr(&mut one), 1, INT, right, 8, w).unwrap();
    for _ in 0..3 {
        got[0] = -1;
        call::start(&mut p).unwrap();
        call::start(&mut q).unwrap();
        call::wait(&mut q).unwrap();
        call::wait(&mut p).unwrap();
        assert_eq!(got[0], left * 10);
    }
    call::request_free(&mut p).unwrap();
    call::request_free(&mut q).unwrap();
    let counts = vec![1; n as usize];
    let displs: Vec<i32> = (0..n).collect();
    call::gatherv(addr(&mut one), 1, INT, addr(&mut all), Ints::Small(&counts), Ints::Small(&displs), INT, 0, w).unwrap();
    if n == 2 {
        let time = call::wtime();
        let mut b = [0u8; 8];
        let ch = Datatype(0x4c00_0101);
        for _ in 0..100_000 {
            if me == 0 { call::send(addr(&mut b), 8, ch, 1, 0, w).unwrap(); call::recv(addr(&mut b), 8, ch, 1, 0, w).unwrap(); }
            else { call::recv(addr(&mut b), 8, ch, 0, 0, w).unwrap(); call::send(addr(&mut b), 8, ch, 0, 0, w).unwrap(); }
        }
        if me == 0 { println!("8 B one way {:.3} us", (call::wtime() - time) * 5.0); }
        let time = call::wtime();
        for _ in 0..10_000 { call::allreduce(addr(&mut [me]), addr(&mut x), 1, INT, SUM, w).unwrap(); }
        if me == 0 { println!("allreduce {:.3} us", (call::wtime() - time) * 100.0); }
        let time = call::wtime();
        for _ in 0..10_000 { call::barrier(w).unwrap(); }
        if me == 0 { println!("barrier {:.3} us", (call::wtime() - time) * 100.0); }
    }
    call::finalize().unwrap();
    println!("rank {me} of {n}: well");
}
