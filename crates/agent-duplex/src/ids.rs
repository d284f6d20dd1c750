//! The ids of receipts and messages, and their serialised form. Ids are unique among all conversations; each conversation needs only one random
//! number.

use uuid::Uuid;

/// The bits that differ between the ids of one conversation: the lowest bits, without the bits that state the kind of the id.
const COUNTED: u128 = (1 << 62) - 1;

/// Creates unique ids. The first id is random, so no other conversation has any of them. The next ids are counted, because each random number costs a
/// system call.
#[derive(Debug)]
pub(crate) struct Ids(u128);

impl Ids {
    pub(crate) fn new() -> Self {
        Self(Uuid::new_v4().as_u128())
    }

    pub(crate) fn next(&mut self) -> Uuid {
        let id = self.0;
        self.0 = (id & !COUNTED) | (id.wrapping_add(1) & COUNTED);
        Uuid::from_u128(id)
    }
}

/// Serialises an id as text.
#[cfg(feature = "serde")]
pub(crate) mod text {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};
    use uuid::Uuid;

    pub(crate) fn serialize<S: Serializer>(id: &Uuid, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(id)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Uuid, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

/// Serialises ids as a list of texts.
#[cfg(feature = "serde")]
pub(crate) mod texts {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};
    use uuid::Uuid;

    pub(crate) fn serialize<S: Serializer>(ids: &[Uuid], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(ids.iter().map(Uuid::to_string))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Uuid>, D::Error> {
        let ids = Vec::<String>::deserialize(from)?;
        let ids = ids.iter().map(|id| id.parse().map_err(D::Error::custom));
        ids.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_unique_and_keep_their_kind() {
        let mut ids = Ids(Uuid::new_v4().as_u128() | (COUNTED - 2));
        let given: Vec<Uuid> = (0..9).map(|_| ids.next()).collect();
        for (i, id) in given.iter().enumerate() {
            assert!(!given[..i].contains(id));
            assert_eq!(id.get_version_num(), 4);
            assert_eq!(id.get_variant(), uuid::Variant::RFC4122);
        }
    }
}
