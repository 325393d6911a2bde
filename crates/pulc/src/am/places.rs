//! Things by number: the lower half of a number is a place, the upper half counts how often the place was used, so that a
//! number never means a later thing. Used by the table of active messages; numbers come from other processes, so every look
//! is checked.

/// Places at most; the rest of a number counts uses.
const PLACES_MAX: usize = 1 << 16;

pub(crate) struct Places<T> {
    places: Vec<(u16, Option<T>)>,
    free: Vec<u16>,
}

impl<T> Default for Places<T> {
    fn default() -> Places<T> {
        Places { places: Vec::new(), free: Vec::new() }
    }
}

impl<T> Places<T> {
    /// Adds what is made from its number. `None` when every place is taken.
    pub fn add(&mut self, make: impl FnOnce(u32) -> T) -> Option<u32> {
        let place = match self.free.pop() {
            Some(place) => place,
            None if self.places.len() < PLACES_MAX => {
                self.places.push((0, None));
                (self.places.len() - 1) as u16
            }
            None => return None,
        };
        let (uses, thing) = &mut self.places[usize::from(place)];
        // Never zero, so that no number is.
        *uses = uses.checked_add(1).unwrap_or(1);
        let number = u32::from(*uses) << 16 | u32::from(place);
        *thing = Some(make(number));
        Some(number)
    }

    #[inline]
    pub fn get(&mut self, number: u32) -> Option<&mut T> {
        let (uses, thing) = self.places.get_mut((number & 0xffff) as usize)?;
        if u32::from(*uses) == number >> 16 { thing.as_mut() } else { None }
    }

    pub fn remove(&mut self, number: u32) -> Option<T> {
        self.get(number)?;
        let place = number as u16;
        self.free.push(place);
        self.places[usize::from(place)].1.take()
    }

    /// Everything there is, with its number.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        (0..).zip(&mut self.places).filter_map(|(place, (uses, thing))| {
            let number = u32::from(*uses) << 16 | place;
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
        let second = places.add(|number| number).unwrap();
        assert_eq!(first & 0xffff, second & 0xffff);
        assert!(places.get(first).is_none() && places.remove(first).is_none());
        assert_eq!(places.iter_mut().count(), 1);
        assert!(places.get(u32::MAX).is_none() && places.get(0).is_none());
    }
}
