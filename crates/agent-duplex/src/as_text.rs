//! How ids and bytes are serialised: as text.

/// What is not UTF-8 becomes U+FFFD.
pub(crate) mod bytes {
    use bytes::Bytes;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(bytes: &Bytes, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&String::from_utf8_lossy(bytes))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Bytes, D::Error> {
        String::deserialize(from).map(Bytes::from)
    }
}

pub(crate) mod id {
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

pub(crate) mod ids {
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
