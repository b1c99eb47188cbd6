//! Serde access to the lists, tables and enums of the tree.

use std::vec;

use serde::de::{
    DeserializeSeed, EnumAccess, IntoDeserializer, MapAccess, SeqAccess, VariantAccess, Visitor,
};

use super::error::Error;
use super::reader::Reader;

/// A list without the items that were left out.
pub(super) struct List<'a> {
    pub(super) items: vec::IntoIter<Reader<'a>>,
}

impl<'de> SeqAccess<'de> for List<'_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        self.items.next().map(|item| item.read(seed)).transpose()
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.items.len())
    }
}

/// A table without unknown keys and the keys that were left out.
pub(super) struct Entries<'a> {
    pub(super) entries: vec::IntoIter<(String, Reader<'a>)>,
    pub(super) value: Option<(String, Reader<'a>)>,
}

impl<'de> MapAccess<'de> for Entries<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        self.value = self.entries.next();
        let Some((key, value)) = &self.value else {
            return Ok(None);
        };
        let key = key.clone().into_deserializer();
        seed.deserialize(key)
            .map(Some)
            .map_err(|e: Error| e.at(value.path()))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        match self.value.take() {
            Some((_, value)) => value.read(seed),
            None => Err(Error::new("value requested before its key")),
        }
    }
}

/// An enum variant: its name alone, or a table with the name as its only key.
pub(super) struct Variant<'a> {
    pub(super) name: String,
    pub(super) content: Option<Reader<'a>>,
}

impl<'de, 'a> EnumAccess<'de> for Variant<'a> {
    type Error = Error;
    type Variant = Content<'a>;

    fn variant_seed<V: DeserializeSeed<'de>>(
        self,
        seed: V,
    ) -> Result<(V::Value, Content<'a>), Error> {
        let name: serde::de::value::StringDeserializer<Error> = self.name.into_deserializer();
        Ok((seed.deserialize(name)?, Content(self.content)))
    }
}

/// The content of a variant.
pub(super) struct Content<'a>(Option<Reader<'a>>);

impl<'a> Content<'a> {
    fn present(self) -> Result<Reader<'a>, Error> {
        self.0.ok_or_else(|| {
            Error::new("this variant needs values").remedy("write it as { variant = … }")
        })
    }
}

impl<'de> VariantAccess<'de> for Content<'_> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        match self.0 {
            None => Ok(()),
            Some(_) => {
                Err(Error::new("this variant takes no values").remedy("write its name alone"))
            }
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Error> {
        self.present()?.read(seed)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        serde::Deserializer::deserialize_seq(self.present()?, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        serde::Deserializer::deserialize_struct(self.present()?, "", fields, visitor)
    }
}
