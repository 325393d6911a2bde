//! Things by number: the lower bits of a number are a place, the upper ones count how often the place was used, so that a
//! number means a later thing only after very many others. Used by the table of active messages; numbers come from other
//! processes, so every look is checked.

use std::collections::VecDeque;

const PLACE_BITS: u32 = 20;
/// Places at most; the rest of a number counts uses.
pub(crate) const PLACES_MAX: usize = 1 << PLACE_BITS;
const USES_MAX: u32 = u32::MAX >> PLACE_BITS;
/// So many other places are used before one is used again, as long as there are enough.
const REST: usize = 256;

pub(crate) struct Places<T> {
    places: Vec<(u32, Option<T>)>,
    free: VecDeque<u32>,
}

impl<T> Default for Places<T> {
    fn default() -> Places<T> {
        Places { places: Vec::new(), free: VecDeque::new() }
    }
}

impl<T> Places<T> {
    /// Adds what is made from its number. `None` when every place is taken.
    pub fn add(&mut self, make: impl FnOnce(u32) -> T) -> Option<u32> {
        let place = match self.free.front() {
            Some(&place) if self.free.len() > REST || self.places.len() == PLACES_MAX => {
                self.free.pop_front();
                place
            }
            _ if self.places.len() < PLACES_MAX => {
                self.places.push((0, None));
                (self.places.len() - 1) as u32
            }
            _ => return None,
        };
        let (uses, thing) = &mut self.places[place as usize];
        // Never zero, so that no number is.
        *uses = if *uses == USES_MAX { 1 } else { *uses + 1 };
        let number = *uses << PLACE_BITS | place;
        *thing = Some(make(number));
        Some(number)
    }

    #[inline]
    pub fn get(&mut self, number: u32) -> Option<&mut T> {
        let (uses, thing) = self.places.get_mut(number as usize % PLACES_MAX)?;
        if *uses == number >> PLACE_BITS { thing.as_mut() } else { None }
    }

    pub fn remove(&mut self, number: u32) -> Option<T> {
        self.get(number)?;
        let place = number % PLACES_MAX as u32;
        self.free.push_back(place);
        self.places[place as usize].1.take()
    }

    /// Everything there is, with its number.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        (0..).zip(&mut self.places).filter_map(|(place, (uses, thing))| {
            let number = *uses << PLACE_BITS | place;
            thing.as_mut().map(|thing| (number, thing))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_something_removed_never_means_what_took_its_place() {
        let mut places = Places::default();
        let first = places.add(|number| number).unwrap();
        assert_eq!(places.get(first), Some(&mut { first }));
        assert_eq!(places.remove(first), Some(first));
        let again = std::iter::repeat_with(|| {
            let number = places.add(|number| number).unwrap();
            places.remove(number);
            number
        });
        let later: Vec<u32> = again.take(100 * REST).collect();
        assert!(later.iter().all(|number| *number != first && *number != 0));
        assert!(
            later.iter().any(|number| number % PLACES_MAX as u32 == first % PLACES_MAX as u32),
            "places are used again"
        );
        assert!(places.places.len() <= REST + 2, "{} places for one thing at a time", places.places.len());
        assert!(places.get(first).is_none() && places.remove(first).is_none() && places.get(u32::MAX).is_none());
        assert_eq!(places.iter_mut().count(), 0);
    }
}
