//! The index of a checkpoint in several files: `{"weight_map": {tensor: file}}`.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};

use super::CheckpointError;
use crate::shown::{FAULT, NAME, shown};

/// The names of the tensors of each file, files and names sorted.
pub(super) fn parse(
    text: &str,
    path: &Path,
) -> Result<BTreeMap<String, Vec<String>>, CheckpointError> {
    let broken = |fault: String| CheckpointError::Index { path: path.to_owned(), fault };
    let index: Index = serde_json::from_str(text)
        .map_err(|error| broken(shown(&format!("is broken: {error}"), FAULT)))?;
    let WeightMap { places, twice } = index.weight_map;
    if let Some(name) = twice {
        return Err(CheckpointError::Twice { path: path.to_owned(), name: shown(&name, NAME) });
    }
    if places.is_empty() {
        return Err(broken("names no tensor".to_owned()));
    }
    let mut files: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (tensor, file) in places {
        if let Some(fault) = fault_of(&file) {
            let file = shown(&file, NAME);
            return Err(CheckpointError::IndexedFile { index: path.to_owned(), file, fault });
        }
        files.entry(file).or_default().push(tensor);
    }
    Ok(files)
}

/// A file of the index lies in the folder itself: its name is no path.
fn fault_of(file: &str) -> Option<&'static str> {
    if file.contains(['/', '\\', '\0']) || file == ".." || file == "." {
        return Some("which is no name of a file in the folder");
    }
    if !file.ends_with(".safetensors") {
        return Some("which is no safetensors file");
    }
    None
}

#[derive(Deserialize)]
struct Index {
    weight_map: WeightMap,
}

struct WeightMap {
    places: BTreeMap<String, String>,
    twice: Option<String>,
}

impl<'de> Deserialize<'de> for WeightMap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<WeightMap, D::Error> {
        deserializer.deserialize_map(WeightMapVisitor)
    }
}

struct WeightMapVisitor;

impl<'de> Visitor<'de> for WeightMapVisitor {
    type Value = WeightMap;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object from tensors to files")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<WeightMap, A::Error> {
        let mut weight_map = WeightMap { places: BTreeMap::new(), twice: None };
        while let Some((tensor, file)) = map.next_entry::<String, String>()? {
            if weight_map.places.insert(tensor.clone(), file).is_some() {
                weight_map.twice.get_or_insert(tensor);
            }
        }
        Ok(weight_map)
    }
}
