//! Fields of a JSON object by name, with the path that messages show.

use std::fmt::Display;
use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use super::ConfigError;
use crate::shown;

/// Characters of a value that a message shows.
const SHOWN: usize = 60;

/// An object and where it stands.
#[derive(Debug, Clone)]
pub(super) struct Fields<'a> {
    path: String,
    map: &'a Map<String, Value>,
}

impl<'a> Fields<'a> {
    /// The outermost object.
    pub(super) fn root(map: &'a Map<String, Value>) -> Fields<'a> {
        Fields { path: String::new(), map }
    }

    /// The path of a field.
    pub(super) fn path(&self, name: &str) -> String {
        let name = shown::shown(name, shown::NAME);
        if self.path.is_empty() { name } else { format!("{}.{name}", self.path) }
    }

    /// The value of a field; null counts as absent.
    pub(super) fn get(&self, name: &str) -> Option<&'a Value> {
        self.map.get(name).filter(|value| !value.is_null())
    }

    /// The names of all fields.
    pub(super) fn names(&self) -> impl Iterator<Item = &'a str> {
        self.map.keys().map(String::as_str)
    }

    fn required(&self, name: &str) -> Result<&'a Value, ConfigError> {
        self.get(name).ok_or_else(|| ConfigError::Missing { field: self.path(name) })
    }

    fn kind(&self, name: &str, expected: &'static str, found: &Value) -> ConfigError {
        ConfigError::Kind { field: self.path(name), expected, found: shown(found) }
    }

    /// An object.
    pub(super) fn object(&self, name: &str) -> Result<Fields<'a>, ConfigError> {
        match self.required(name)? {
            Value::Object(map) => Ok(Fields { path: self.path(name), map }),
            other => Err(self.kind(name, "an object", other)),
        }
    }

    /// A whole number within limits.
    pub(super) fn count(
        &self,
        name: &str,
        limits: RangeInclusive<usize>,
    ) -> Result<usize, ConfigError> {
        let value = self.required(name)?;
        self.count_of(name, value, &limits)
    }

    fn count_of(
        &self,
        name: &str,
        value: &Value,
        limits: &RangeInclusive<usize>,
    ) -> Result<usize, ConfigError> {
        if !value.is_number() {
            return Err(self.kind(name, "a whole number", value));
        }
        match value.as_u64().and_then(|count| usize::try_from(count).ok()) {
            Some(count) if limits.contains(&count) => Ok(count),
            Some(_) | None => Err(ConfigError::Range {
                field: self.path(name),
                found: shown(value),
                limits: format!("a whole number from {} to {}", limits.start(), limits.end()),
            }),
        }
    }

    /// A whole number, or a list of at least one.
    pub(super) fn counts(
        &self,
        name: &str,
        limits: RangeInclusive<usize>,
    ) -> Result<Vec<usize>, ConfigError> {
        let value = self.required(name)?;
        let Value::Array(list) = value else {
            return Ok(vec![self.count_of(name, value, &limits)?]);
        };
        if list.is_empty() {
            return Err(self.kind(name, "a whole number or a list of at least one", value));
        }
        list.iter().map(|value| self.count_of(name, value, &limits)).collect()
    }

    /// A list of whole numbers, which may be empty.
    pub(super) fn list(
        &self,
        name: &str,
        limits: RangeInclusive<usize>,
    ) -> Result<Vec<usize>, ConfigError> {
        match self.required(name)? {
            Value::Array(list) => {
                list.iter().map(|value| self.count_of(name, value, &limits)).collect()
            }
            other => Err(self.kind(name, "a list of whole numbers", other)),
        }
    }

    /// A number within limits.
    pub(super) fn number(
        &self,
        name: &str,
        limits: RangeInclusive<f64>,
    ) -> Result<f64, ConfigError> {
        let value = self.required(name)?;
        match value.as_f64() {
            Some(number) if limits.contains(&number) => Ok(number),
            Some(_) => Err(ConfigError::Range {
                field: self.path(name),
                found: shown(value),
                limits: format!("a number from {:e} to {:e}", limits.start(), limits.end()),
            }),
            None => Err(self.kind(name, "a number", value)),
        }
    }

    /// Refuses any value but the one that is supported.
    pub(super) fn must_be(
        &self,
        name: &str,
        expected: impl Into<Value>,
    ) -> Result<(), ConfigError> {
        self.must_be_value(name, self.required(name)?, &expected.into())
    }

    /// The same for a field that may be absent.
    pub(super) fn may_only_be(
        &self,
        name: &str,
        expected: impl Into<Value>,
    ) -> Result<(), ConfigError> {
        match self.get(name) {
            Some(value) => self.must_be_value(name, value, &expected.into()),
            None => Ok(()),
        }
    }

    /// Refuses any value; null counts as absent.
    pub(super) fn must_be_absent(&self, name: &str) -> Result<(), ConfigError> {
        match self.get(name) {
            Some(value) => Err(self.unsupported(name, shown(value), "null")),
            None => Ok(()),
        }
    }

    /// Refuses what is neither true nor false; it may be absent.
    pub(super) fn may_be_flag(&self, name: &str) -> Result<(), ConfigError> {
        match self.get(name) {
            Some(value) if !value.is_boolean() => Err(self.kind(name, "true or false", value)),
            Some(_) | None => Ok(()),
        }
    }

    fn must_be_value(
        &self,
        name: &str,
        value: &Value,
        expected: &Value,
    ) -> Result<(), ConfigError> {
        if value == expected {
            return Ok(());
        }
        Err(self.unsupported(name, shown(value), shown(expected)))
    }

    /// The error for a setting that is not implemented.
    pub(super) fn unsupported(
        &self,
        name: &str,
        found: impl Display,
        expected: impl Display,
    ) -> ConfigError {
        ConfigError::Unsupported {
            field: self.path(name),
            found: found.to_string(),
            expected: expected.to_string(),
        }
    }

    /// Refuses a size that is no multiple.
    pub(super) fn multiple(&self, name: &str, found: usize, of: usize) -> Result<(), ConfigError> {
        if found.is_multiple_of(of) {
            return Ok(());
        }
        Err(ConfigError::Multiple { field: self.path(name), found, of })
    }
}

/// The start of a value as JSON.
fn shown(value: &Value) -> String {
    shown::shown(&value.to_string(), SHOWN)
}
