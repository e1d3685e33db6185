//! Weights in the order of their kernels: what the executor gets, and the file that keeps them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use kernel_abi::exec::Executor;
use kernel_abi::plan::{
    BufferId, BufferRole, CheckedPlan, ExtentSpec, KernelKey, ParamSpec, PlanBuilder, Signature,
};
use kernel_abi::stored::{StoredDigit, StoredLayout};
use kernel_abi::{Access, DType};
use kimi_k3::code::Code;
use kimi_k3::load::{
    LoadError, Progress, Unwatched, Watch, load_weights, open_packed, pack_weights, repack_weights,
};
use kimi_k3::packed::{self, Kept, PackedError, Place};
use kimi_k3::weights::{Piece, Recipe, TensorSource};

/// Tensors of bytes that count how often they are read.
struct Tensors(AtomicUsize);

impl TensorSource for Tensors {
    type Error = PackedError;

    fn matrix(
        &self,
        name: &str,
        _: DType,
        rows: u64,
        columns: u64,
    ) -> Result<Cow<'_, [u8]>, PackedError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        let first = name.len() as u64;
        Ok(Cow::Owned((0..rows * columns).map(|at| ((first + 7 * at) % 251) as u8).collect()))
    }
}

/// Keeps what it gets.
struct Shelf {
    plan: CheckedPlan,
    bytes: BTreeMap<(u32, u32), Vec<u8>>,
}

impl Executor for Shelf {
    type Error = PackedError;

    fn plan(&self) -> &CheckedPlan {
        &self.plan
    }

    fn write(&mut self, rank: u32, buffer: BufferId, bytes: &[u8]) -> Result<(), PackedError> {
        self.bytes.insert((rank, buffer.0), bytes.to_vec());
        Ok(())
    }

    fn read(&self, rank: u32, buffer: BufferId) -> Result<Vec<u8>, PackedError> {
        Ok(self.bytes[&(rank, buffer.0)].clone())
    }

    fn step(&mut self) -> Result<(), PackedError> {
        Ok(())
    }
}

type Weights = Vec<(BufferId, Vec<Recipe>)>;

/// Columns of `[6, 8]` first.
fn turned() -> StoredLayout {
    let digit = |extent, stride| vec![StoredDigit { extent, stride }];
    StoredLayout::new(vec![digit(6, 1), digit(8, 6)]).unwrap()
}

/// Two ranks with a weight that is packed, one that is not, and a second that is.
fn model() -> (CheckedPlan, Weights) {
    let mut plan = PlanBuilder::new(2);
    let shape = [6, 8];
    let mut weights = Vec::new();
    for (name, tensor) in [("a", "first"), ("plain", "in a row"), ("b", "second one")] {
        let id = plan.buffer(name, DType::U8, &shape, BufferRole::Weight);
        let of_rank = |rank: u64| {
            Recipe::Rows(vec![Piece::rows(tensor, DType::U8, 6 * rank..6 * rank + 6, 12, 8)])
        };
        weights.push((id, vec![of_rank(0), of_rank(1)]));
    }
    plan.kernel("k", "k.tile", "k", &[])
        .read("a", weights[0].0)
        .read("plain", weights[1].0)
        .read("b", weights[2].0)
        .add();
    let shape = shape.map(ExtentSpec::Const).to_vec();
    let param = |name: &str, stored| ParamSpec {
        stored,
        ..ParamSpec::new(name, Access::Static, DType::U8, shape.clone())
    };
    let params = vec![param("a", Some(turned())), param("plain", None), param("b", Some(turned()))];
    let key = KernelKey { file: "k.tile".into(), kernel: "k".into(), bindings: BTreeMap::new() };
    let signature = Signature::new(params, false);
    (plan.finish().check([(key, signature)].into()).unwrap(), weights)
}

fn place(folder: &Path) -> Place {
    let model = folder.join("model");
    Place { folder: folder.join("packed"), model, ranks: 2, checkpoint: [7; 32], least: 0 }
}

/// What loading gave.
struct Loaded {
    kept: Vec<Kept>,
    faults: Vec<PackedError>,
    /// Tensors that were read.
    reads: usize,
}

/// Loads everything and compares it with what it must be.
fn load(place: &Place) -> Loaded {
    let (plan, weights) = model();
    let packed = open_packed(&plan, &weights, place);
    let tensors = Tensors(AtomicUsize::new(0));
    let mut shelf = Shelf { plan, bytes: BTreeMap::new() };
    load_weights(&mut shelf, &weights, &tensors, &packed, &Unwatched).unwrap();
    let reads = tensors.0.load(Ordering::Relaxed);
    for (buffer, recipes) in &weights {
        for (rank, recipe) in (0..).zip(recipes) {
            let rows = recipe.make(&tensors).unwrap();
            let want = match shelf.plan.stored(*buffer) {
                Some(layout) => layout.pack(DType::U8, &rows).unwrap(),
                None => rows,
            };
            assert_eq!(shelf.bytes[&(rank, buffer.0)], want, "{buffer:?} of {rank}");
        }
    }
    let faults = packed.iter().flat_map(packed::Packed::take_faults).collect();
    let kept = packed.into_iter().map(|packed| packed.finish().unwrap()).collect();
    Loaded { kept, faults, reads }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder.join("packed")).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn packed_weights_are_made_once_and_read_afterwards() {
    let folder = tempfile::tempdir().unwrap();
    let first = load(&place(folder.path()));
    assert_eq!((first.kept, first.faults, first.reads), (vec![Kept::Now; 2], vec![], 6));
    let names: Vec<String> = files(folder.path())
        .iter()
        .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
        .collect();
    assert!(names[0].starts_with("rank0-of-2-") && names[1].starts_with("rank1-of-2-"));
    assert!(names.len() == 2 && names.iter().all(|name| name.ends_with(".kpacked")));
    // Only what needs no packing comes from the checkpoint.
    let second = load(&place(folder.path()));
    assert_eq!((second.kept, second.faults, second.reads), (vec![Kept::Before; 2], vec![], 2));
    // Another checkpoint, another number of ranks: other files.
    load(&Place { checkpoint: [8; 32], ..place(folder.path()) });
    load(&Place { ranks: 3, ..place(folder.path()) });
    assert_eq!(files(folder.path()).len(), 6);
}

#[test]
fn weights_that_are_packed_in_a_moment_get_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let place = Place { least: 97, ..place(folder.path()) };
    assert_eq!(load(&place).kept, [Kept::Nowhere; 2]);
    assert!(!folder.path().join("packed").exists());
    let place = Place { least: 96, ..place };
    assert_eq!(load(&place).kept, [Kept::Now; 2]);
}

#[test]
fn every_damage_is_found_said_and_mended() {
    let folder = tempfile::tempdir().unwrap();
    let place = place(folder.path());
    load(&place);
    let path = files(folder.path())[0].clone();
    let whole = std::fs::read(&path).unwrap();
    let index = 64 + u64::from_le_bytes(whole[24..32].try_into().unwrap()) as usize;
    let starts: Vec<usize> = (0..whole.len()).step_by(4096).skip(1).collect();
    assert_eq!(starts.len(), 2);
    // Bytes of the header and the index, and of each weight.
    let mut bytes: Vec<usize> = (0..64).collect();
    bytes.extend((64..index).step_by(13));
    bytes.extend(starts.iter().flat_map(|start| [*start, start + 47]));
    let mut damages: Vec<(String, Vec<u8>)> = Vec::new();
    for at in bytes {
        let mut changed = whole.clone();
        changed[at] ^= 0x10;
        damages.push((format!("byte {at}"), changed));
    }
    for len in [0, 1, 63, 64, index - 1, 4096, 4100, whole.len() - 1] {
        damages.push((format!("{len} bytes"), whole[..len].to_vec()));
    }
    damages.push(("longer".to_owned(), [&whole[..], &[0]].concat()));
    damages.push(("another rank".to_owned(), std::fs::read(&files(folder.path())[1]).unwrap()));
    damages.push(("text".to_owned(), b"{}".repeat(5000)));
    for (what, damaged) in damages {
        std::fs::write(&path, &damaged).unwrap();
        let found = load(&place);
        assert!(found.faults.iter().all(|fault| fault.code() == Code::K0214), "{what}");
        let said = found.faults.iter().any(|fault| fault.to_string().contains("made anew"));
        assert!(said, "{what}");
        match found.kept[0] {
            Kept::Now => {}
            Kept::Damaged => {
                let (plan, weights) = model();
                let tensors = Tensors(AtomicUsize::new(0));
                let done = pack_weights(&plan, &weights, &tensors, (&place, 0), &Unwatched);
                assert_eq!(done.unwrap().kept, Kept::Now, "{what}");
            }
            Kept::Before | Kept::Nowhere => panic!("{what}: {:?}", found.kept),
        }
        assert_eq!(std::fs::read(&path).unwrap(), whole, "{what}");
    }
    assert_eq!(files(folder.path()).len(), 2);
}

#[test]
fn packing_ahead_makes_the_file_of_one_rank() {
    let folder = tempfile::tempdir().unwrap();
    let place = place(folder.path());
    let (plan, weights) = model();
    let tensors = Tensors(AtomicUsize::new(0));
    let pack = || pack_weights(&plan, &weights, &tensors, (&place, 1), &Unwatched).unwrap();
    let done = pack();
    let (path, bytes) = done.file.unwrap();
    assert_eq!((done.kept, bytes, &path), (Kept::Now, 96, &files(folder.path())[0]));
    assert_eq!(pack().kept, Kept::Before);
    assert_eq!(tensors.0.load(Ordering::Relaxed), 2);
    assert_eq!(load(&place).kept, [Kept::Now, Kept::Before]);
}

#[test]
fn a_folder_that_takes_nothing_is_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("packed"), "a file").unwrap();
    let place = place(folder.path());
    let loaded = load(&place);
    assert_eq!(loaded.kept, [Kept::Nowhere; 2]);
    let codes: Vec<Code> = loaded.faults.iter().map(PackedError::code).collect();
    assert!(codes.contains(&Code::K0215), "{codes:?}");
    // Where it is all that was asked for it is an error.
    let (plan, weights) = model();
    let tensors = Tensors(AtomicUsize::new(0));
    let error = pack_weights(&plan, &weights, &tensors, (&place, 0), &Unwatched).unwrap_err();
    assert!(matches!(error, LoadError::Executor(error) if error.code() == Code::K0215));
}

#[test]
fn two_processes_may_pack_at_the_same_time() {
    let folder = tempfile::tempdir().unwrap();
    let place = place(folder.path());
    std::thread::scope(|scope| {
        let both = [scope.spawn(|| load(&place)), scope.spawn(|| load(&place))];
        for one in both {
            assert!(one.join().unwrap().faults.is_empty());
        }
    });
    assert_eq!(files(folder.path()).len(), 2);
    assert_eq!(load(&place).kept, [Kept::Before; 2]);
}

/// Stops after the first weight.
struct Once(AtomicUsize);

impl Watch for Once {
    fn loaded(&self, progress: Progress) {
        assert!(progress.done <= progress.all && progress.all == 6 * 48);
    }

    fn goes_on(&self) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed) < 1
    }
}

#[test]
fn what_is_stopped_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (plan, weights) = model();
    let packed = open_packed(&plan, &weights, &place(folder.path()));
    let tensors = Tensors(AtomicUsize::new(0));
    let mut shelf = Shelf { plan, bytes: BTreeMap::new() };
    let watch = Once(AtomicUsize::new(0));
    let stopped = load_weights(&mut shelf, &weights, &tensors, &packed, &watch).unwrap_err();
    assert!(matches!(stopped, LoadError::Stopped));
    assert!(packed.into_iter().all(|packed| packed.finish() == Ok(Kept::Nowhere)));
    assert!(files(folder.path()).is_empty());
}

#[test]
fn the_folder_lies_beside_the_checkpoint_and_never_inside() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model");
    std::fs::create_dir(&model).unwrap();
    let beside = packed::folder(&model, None).unwrap();
    assert_eq!(beside, folder.path().canonicalize().unwrap().join("model.packed"));
    // Inside whatever it is named by, whether it is there or not.
    let link = folder.path().join("link");
    std::os::unix::fs::symlink("model", &link).unwrap();
    std::fs::create_dir(model.join("there")).unwrap();
    std::os::unix::fs::symlink("model/there", folder.path().join("deep")).unwrap();
    for inside in [
        "model",
        "model/x",
        "model/../model/y",
        "link",
        "link/p1",
        "link/there/x/y",
        "x/../model/p4",
        "x/y/../../link/z",
        "deep",
        "deep/../x",
    ] {
        for named in [&model, &link, &folder.path().join("x/../model")] {
            let refused = packed::folder(named, Some(&folder.path().join(inside))).unwrap_err();
            assert_eq!(refused.code(), Code::K0215, "{inside}");
        }
    }
    for outside in ["other", "model.x", "link.x/y", "model/../z", "deep/../../z", "x/../model.y"] {
        let asked = folder.path().join(outside);
        assert_eq!(packed::folder(&link, Some(&asked)), Ok(asked), "{outside}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3);
}

#[test]
fn a_folder_that_turns_out_to_be_inside_gets_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model");
    std::fs::create_dir(&model).unwrap();
    let place = place(folder.path());
    std::os::unix::fs::symlink("model", &place.folder).unwrap();
    let loaded = load(&place);
    assert_eq!(loaded.kept, [Kept::Nowhere; 2]);
    assert!(loaded.faults.iter().all(|fault| fault.to_string().contains("inside")));
    assert_eq!(std::fs::read_dir(&model).unwrap().count(), 0);
}

/// Tensors during whose making the folder of packed weights becomes a file, which takes nothing.
struct Gone<'f>(&'f Path);

impl TensorSource for Gone<'_> {
    type Error = PackedError;

    fn matrix(
        &self,
        name: &str,
        dtype: DType,
        rows: u64,
        columns: u64,
    ) -> Result<Cow<'_, [u8]>, PackedError> {
        if self.0.is_dir() {
            std::fs::rename(self.0, self.0.with_file_name("old")).unwrap();
            std::fs::write(self.0, "").unwrap();
        }
        let bytes = Tensors(AtomicUsize::new(0)).matrix(name, dtype, rows, columns)?.into_owned();
        Ok(Cow::Owned(bytes))
    }
}

#[test]
fn damage_in_a_folder_that_takes_nothing_ends() {
    let folder = tempfile::tempdir().unwrap();
    let place = place(folder.path());
    load(&place);
    let path = files(folder.path())[0].clone();
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[4096] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let (plan, weights) = model();
    let gone = Gone(&place.folder);
    let error = pack_weights(&plan, &weights, &gone, (&place, 0), &Unwatched).unwrap_err();
    assert!(matches!(error, LoadError::Executor(error) if error.code() == Code::K0215));
    let error = repack_weights(&plan, &weights, &gone, (&place, 0), &Unwatched).unwrap_err();
    assert!(matches!(error, LoadError::Executor(error) if error.code() == Code::K0215));
}
