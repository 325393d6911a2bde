//! Datatypes against an oracle: random types of every constructor are compared with their type maps in size, bounds, packed bytes
//! at every cut, and what they leave untouched.

use super::Type;
use super::arrays::{Deal, darray};
use super::basic::named;
use super::oracle::{Entry, bounds, specs, stream};
use super::typemap::Typemap;
use crate::consts::*;
use crate::memory::Room;
use proptest::prelude::*;
use std::sync::Arc;

/// Memory around the origin, every byte different from its neighbours.
struct Field {
    room: Room,
    half: i64,
}

impl Field {
    fn new(places: &[i64]) -> Field {
        let half = places.iter().map(|place| place.abs()).max().unwrap_or(0) + 64;
        let mut room = Room::new(2 * half as usize);
        let bytes: Vec<u8> = (0..2 * half).map(Field::byte).collect();
        room.addr().write(0, &bytes);
        Field { room, half }
    }

    fn byte(at: i64) -> u8 {
        (at.wrapping_mul(167).wrapping_add(at >> 8)) as u8
    }

    fn origin(&mut self) -> crate::memory::Addr {
        self.room.addr().offset(self.half)
    }

    fn all(&mut self) -> Vec<u8> {
        let mut all = vec![0; 2 * self.half as usize];
        self.room.addr().read(0, &mut all);
        all
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 30 } else { 3000 }))]

    #[test]
    fn size_bounds_and_copies_are_those_of_the_type_map(
        spec in specs(),
        count in 0i64..4,
        cuts in prop::collection::vec(any::<u16>(), 0..6),
    ) {
        let map = spec.map();
        prop_assume!(map.len() < 4000);
        let made = Type::new(spec.build().unwrap(), "");
        let (lb, extent) = bounds(&map);
        let one = stream(&map, 1);
        prop_assert_eq!(made.size(), one.len() as u64);
        prop_assert_eq!((made.lb(), made.extent()), (lb, extent));
        let true_lb = one.iter().min().copied().unwrap_or(0);
        let true_ub = one.iter().max().map_or(0, |last| last + 1);
        prop_assert_eq!((made.true_lb(), made.true_extent()), (true_lb, true_ub - true_lb));
        let places = stream(&map, count);
        if count > 0 && !one.is_empty() {
            let begin = *places.iter().min().unwrap();
            let end = places.iter().max().unwrap() + 1;
            prop_assert_eq!(made.span(count).unwrap(), (begin, (end - begin) as u64));
        }
        if let Some((at, len)) = made.one_piece(count) {
            prop_assert!(places.iter().copied().eq((0..len as i64).map(|byte| at + byte)));
        }

        // The stream in pieces, cut anywhere, and the pieces in any order.
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| *cut as usize % (places.len() + 1)).collect();
        cuts.extend([0, places.len()]);
        cuts.sort_unstable();
        let mut field = Field::new(&places);
        let half = field.half;
        let mut packed = vec![0; places.len()];
        for pair in cuts.windows(2).rev() {
            made.pack(field.origin(), count, pair[0] as u64, &mut packed[pair[0]..pair[1]]);
            let mut listed = Vec::new();
            made.pieces(count, pair[0] as u64, pair[1] as u64, &mut |at, len| listed.extend(at..at + len as i64));
            prop_assert_eq!(&listed, &places[pair[0]..pair[1]]);
        }
        let expected: Vec<u8> = places.iter().map(|place| Field::byte(half + place)).collect();
        prop_assert_eq!(&packed, &expected);

        // And back: later bytes of the stream win where places overlap, what is no data stays.
        let input: Vec<u8> = (0..places.len()).map(|at| !(at as u8)).collect();
        let mut wanted = field.all();
        for (place, byte) in places.iter().zip(&input) {
            wanted[(half + place) as usize] = *byte;
        }
        for pair in cuts.windows(2) {
            made.unpack(field.origin(), count, pair[0] as u64, &input[pair[0]..pair[1]]);
        }
        prop_assert_eq!(field.all(), wanted);
    }

    #[test]
    fn elements_are_counted_as_in_the_type_map(spec in specs(), count in 0i64..3) {
        let map = spec.map();
        prop_assume!(map.len() < 2000);
        let made = Type::new(spec.build().unwrap(), "");
        let ends: Vec<u64> = (0..count)
            .flat_map(|_| map.iter())
            .filter_map(|entry| if let Entry::Data(_, size, _) = entry { Some(*size) } else { None })
            .scan(0, |end, size| {
                *end += size;
                Some(*end)
            })
            .collect();
        let total = made.size() * count as u64;
        for bytes in 0..=total.min(300) {
            let expected = if bytes == 0 { Some(0) } else { ends.iter().position(|end| *end == bytes).map(|at| at as i64 + 1) };
            prop_assert_eq!(made.elements(bytes), expected, "{} bytes", bytes);
            if let Some(elements) = expected {
                prop_assert_eq!(made.bytes_of_elements(elements), Some(bytes));
            }
            let whole = made.size() > 0 && bytes % made.size() == 0;
            prop_assert_eq!(made.count(bytes), if bytes == 0 || whole { Some((bytes / made.size().max(1)) as i64) } else { None });
        }
    }

    #[test]
    fn the_parts_of_a_distributed_array_cover_it_once(
        dims in prop::collection::vec((1i64..8, 0u8..4, 1i64..4, 1i32..4), 1..4),
        c_order in any::<bool>(),
    ) {
        let deals: Vec<Deal> = dims.iter().map(|&(size, how, argument, processes)| {
            let (distribution, argument, processes) = match how {
                0 => (DISTRIBUTE_NONE, DISTRIBUTE_DFLT_DARG, 1),
                1 => (DISTRIBUTE_BLOCK, DISTRIBUTE_DFLT_DARG, processes),
                2 => (DISTRIBUTE_CYCLIC, DISTRIBUTE_DFLT_DARG, processes),
                _ => (DISTRIBUTE_CYCLIC, argument as i32, processes),
            };
            Deal { size, distribution, argument, processes }
        }).collect();
        let processes: i32 = deals.iter().map(|deal| deal.processes).product();
        let order = if c_order { ORDER_C } else { ORDER_FORTRAN };
        let old = Arc::new(Typemap::basic(named("MPI_INT")));
        let total: i64 = deals.iter().map(|deal| deal.size).product();
        let mut owner = vec![None; total as usize];
        for rank in 0..processes {
            let part = Type::new(Arc::new(darray(processes, rank, &deals, order, &old, false).unwrap()), "");
            prop_assert_eq!((part.lb(), part.extent()), (0, 4 * total));
            let mut previous = None;
            part.pieces(1, 0, part.size(), &mut |at, len| {
                assert!(at % 4 == 0 && len % 4 == 0, "whole elements");
                assert!(previous.is_none_or(|before| at > before), "in the order of memory");
                previous = Some(at);
                for element in at / 4..(at + len as i64) / 4 {
                    assert_eq!(owner[element as usize].replace(rank), None, "element {element} has two owners");
                }
            });
        }
        for (element, owner) in owner.iter().enumerate() {
            prop_assert_eq!(*owner, Some(owner_of(element as i64, &deals, c_order)), "element {}", element);
        }
    }
}

/// The owner of an element by the definitions of BLOCK and CYCLIC.
fn owner_of(element: i64, deals: &[Deal], c_order: bool) -> i32 {
    let mut rest = element;
    let mut index = vec![0; deals.len()];
    let fastest_first: Vec<usize> = if c_order { (0..deals.len()).rev().collect() } else { (0..deals.len()).collect() };
    for dimension in fastest_first {
        index[dimension] = rest % deals[dimension].size;
        rest /= deals[dimension].size;
    }
    deals.iter().zip(index).fold(0, |rank, (deal, index)| {
        let processes = i64::from(deal.processes);
        let coordinate = match (deal.distribution, deal.argument) {
            (DISTRIBUTE_NONE, _) => 0,
            (DISTRIBUTE_BLOCK, _) => index / (deal.size + processes - 1).div_euclid(processes),
            (_, DISTRIBUTE_DFLT_DARG) => index % processes,
            (_, argument) => index / i64::from(argument) % processes,
        };
        rank * deal.processes + coordinate as i32
    })
}
