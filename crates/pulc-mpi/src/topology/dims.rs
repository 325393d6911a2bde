//! `MPI_Dims_create`: the dimensions of a grid that is as even as possible.
//!
//! Source: MPI-5.0, section 8.5.2.

use crate::error::{Class, Error, Result};

/// Fills in the dimensions that are zero, so that all together have `nodes` cells. Those filled in are as near to each other as can
/// be (the largest as small as possible, then the next one), and in falling order.
pub fn dims_create(nodes: i32, dims: &mut [i32]) -> Result<()> {
    let wrong = |text: String| Error::new(Class::DIMS, text);
    if nodes < 1 {
        return Err(wrong(format!("a grid of {nodes} processes: at least 1")));
    }
    if let Some(dim) = dims.iter().find(|dim| **dim < 0) {
        return Err(wrong(format!("a dimension of {dim}: 0 to have it filled in, or at least 1")));
    }
    let fixed = dims.iter().filter(|dim| **dim > 0).try_fold(1i32, |product, dim| product.checked_mul(*dim));
    let Some(fixed) = fixed.filter(|fixed| nodes % fixed == 0) else {
        return Err(wrong(format!(
            "{nodes} processes can't be dealt out to {dims:?}: the fixed dimensions do not divide them"
        )));
    };
    let free = dims.iter().filter(|dim| **dim == 0).count();
    let rest = nodes / fixed;
    if free == 0 {
        return if rest == 1 { Ok(()) } else { Err(wrong(format!("{dims:?} is no grid of {nodes} processes"))) };
    }
    let divisors = divisors(rest);
    let mut chosen = Vec::with_capacity(free);
    let found = even(rest, free, rest, &divisors, &mut chosen);
    debug_assert!(found, "n times one is a grid");
    for (dim, value) in dims.iter_mut().filter(|dim| **dim == 0).zip(chosen) {
        *dim = value;
    }
    Ok(())
}

/// Writes `value` as a product of `count` divisors, none larger than `limit`, the smallest possible one first.
fn even(value: i32, count: usize, limit: i32, divisors: &[i32], chosen: &mut Vec<i32>) -> bool {
    if count == 1 {
        chosen.push(value);
        return value <= limit;
    }
    // A product of `count` numbers up to `first` must reach the value.
    let reaches =
        |first: i32| (0..count).try_fold(1i32, |product, _| product.checked_mul(first)).is_none_or(|p| p >= value);
    let candidates = divisors.iter().copied().filter(|first| *first <= limit && value % first == 0 && reaches(*first));
    let depth = chosen.len();
    for first in candidates {
        chosen.push(first);
        if even(value / first, count - 1, first, divisors, chosen) {
            return true;
        }
        chosen.truncate(depth);
    }
    false
}

fn divisors(value: i32) -> Vec<i32> {
    let small = (1..).take_while(|divisor| i64::from(*divisor) * i64::from(*divisor) <= i64::from(value));
    let mut all: Vec<i32> =
        small.filter(|divisor| value % divisor == 0).flat_map(|divisor| [divisor, value / divisor]).collect();
    all.sort_unstable();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn created(nodes: i32, dims: &[i32]) -> Result<Vec<i32>> {
        let mut dims = dims.to_vec();
        dims_create(nodes, &mut dims).map(|()| dims)
    }

    #[test]
    fn the_examples_of_the_standard_come_out() {
        assert_eq!(created(6, &[0, 0]), Ok(vec![3, 2]));
        assert_eq!(created(7, &[0, 0]), Ok(vec![7, 1]));
        assert_eq!(created(6, &[0, 3, 0]), Ok(vec![2, 3, 1]));
        assert_eq!(created(7, &[0, 3, 0]).unwrap_err().class, Class::DIMS);
    }

    #[test]
    fn grids_are_even_also_where_the_greedy_way_is_not() {
        assert_eq!(created(16, &[0, 0, 0]), Ok(vec![4, 2, 2]));
        assert_eq!(created(144, &[0, 0]), Ok(vec![12, 12]));
        assert_eq!(created(72, &[0, 0, 0]), Ok(vec![6, 4, 3]));
        assert_eq!(created(1 << 30, &[0; 3]), Ok(vec![1024; 3]));
        assert_eq!(created(2147483647, &[0, 0]), Ok(vec![2147483647, 1]));
        assert_eq!(created(1, &[0; 40]), Ok(vec![1; 40]));
        assert_eq!(created(735134400, &[0; 12]).map(|dims| dims.iter().product::<i32>()), Ok(735134400));
    }

    #[test]
    fn impossible_grids_are_refused() {
        for (nodes, dims) in [(0, vec![0]), (4, vec![-1, 0]), (4, vec![2, 3]), (4, vec![2, 1]), (4, vec![])] {
            assert_eq!(created(nodes, &dims).unwrap_err().class, Class::DIMS, "{nodes} {dims:?}");
        }
        assert_eq!(created(1, &[]), Ok(vec![]));
    }

    proptest! {
        #[test]
        fn the_largest_dimension_is_as_small_as_can_be(nodes in 1i32..400, count in 1usize..4) {
            let dims = created(nodes, &vec![0; count]).unwrap();
            prop_assert_eq!(dims.iter().product::<i32>(), nodes);
            prop_assert!(dims.windows(2).all(|pair| pair[0] >= pair[1]));
            let best = match count {
                1 => nodes,
                2 => (1..=nodes).filter(|a| nodes % a == 0).map(|a| a.max(nodes / a)).min().unwrap(),
                _ => (1..=nodes).filter(|a| nodes % a == 0).flat_map(|a| {
                    let rest = nodes / a;
                    (1..=rest).filter(move |b| rest % b == 0).map(move |b| a.max(b).max(rest / b))
                }).min().unwrap(),
            };
            prop_assert_eq!(dims[0], best);
        }
    }
}
