//! What a launch must hold before the driver sees it.

mod maps;

use kernel_abi::bundle::{LaunchSpec, TENSOR_COLUMNS};
use kernel_abi::plan::{ExtentSpec, ParamSpec, Scalar, Signature};
use kernel_abi::{Access, DType};

use crate::device::DeviceInfo;
use crate::error::RuntimeError;
use crate::memory::Buffer;

pub(crate) use maps::{Arguments, arguments};

/// Grid, threads and attributes of a kernel's launches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaunchShape {
    /// CTAs along x, y, z.
    pub grid: [u32; 3],
    /// Threads of a CTA.
    pub threads: u32,
    /// Dynamic shared memory of a CTA in bytes.
    pub dynamic_shared_bytes: u32,
    /// Columns of tensor memory that a CTA allocates.
    pub tensor_columns: u32,
    /// CTAs of a cluster along x, y, z.
    pub cluster: Option<[u32; 3]>,
    /// All CTAs have to be on the device at once, since they wait for others.
    pub resident: bool,
}

impl From<LaunchSpec> for LaunchShape {
    fn from(spec: LaunchSpec) -> LaunchShape {
        LaunchShape {
            grid: spec.grid,
            threads: spec.threads,
            dynamic_shared_bytes: spec.dynamic_shared_bytes,
            tensor_columns: spec.tensor_columns,
            cluster: (spec.cluster != [1; 3]).then_some(spec.cluster),
            resident: spec.resident,
        }
    }
}

/// Greatest extent of a grid along x, and along y and z.
const GRID: [u32; 3] = [i32::MAX as u32, 65_535, 65_535];

/// CTAs of a cluster at most, where nothing special is asked for.
const CLUSTER: u32 = 8;

impl LaunchShape {
    /// Refuses what a device does not take. `static_shared_bytes` and `threads_of_kernel` come from the machine code.
    ///
    /// # Errors
    /// The first thing that does not fit.
    pub fn check(
        &self,
        kernel: &str,
        device: &DeviceInfo,
        static_shared_bytes: u32,
        threads_of_kernel: u32,
    ) -> Result<(), RuntimeError> {
        let refused = |fault: String| RuntimeError::Shape { kernel: kernel.to_owned(), fault };
        for (axis, (&extent, limit)) in ["x", "y", "z"].iter().zip(self.grid.iter().zip(GRID)) {
            if extent == 0 || extent > limit {
                return Err(refused(format!("{extent} CTAs along {axis}, of 1 to {limit}")));
            }
        }
        let threads = device.threads_of_block.min(threads_of_kernel);
        if self.threads == 0 || self.threads > threads {
            return Err(refused(format!("{} threads of a CTA, of 1 to {threads}", self.threads)));
        }
        let shared = u64::from(self.dynamic_shared_bytes) + u64::from(static_shared_bytes);
        let limit = u64::from(device.shared_bytes_of_block);
        if shared > limit {
            return Err(refused(format!("{shared} bytes of shared memory, of {limit} at most")));
        }
        if let Some(cluster) = self.cluster {
            let all = cluster.iter().try_fold(1u32, |n, &e| n.checked_mul(e)).unwrap_or(u32::MAX);
            if all == 0 || all > CLUSTER {
                return Err(refused(format!("{all} CTAs of a cluster, of 1 to {CLUSTER}")));
            }
            if self.grid.iter().zip(cluster).any(|(&grid, cluster)| !grid.is_multiple_of(cluster)) {
                let (grid, cluster) = (self.grid, cluster);
                return Err(refused(format!("a grid of {grid:?} is no multiple of {cluster:?}")));
            }
        }
        Ok(())
    }

    /// CTAs that the tensor memory of so many multiprocessors holds at once, whole clusters: a CTA waits for its columns
    /// until others give theirs back, and the driver's count of CTAs leaves them out.
    pub fn ctas_in_tensor_memory(&self, multiprocessors: u32) -> u64 {
        let Some(each) = TENSOR_COLUMNS.checked_div(self.tensor_columns) else { return u64::MAX };
        let ctas = u64::from(each) * u64::from(multiprocessors);
        let of_cluster = self.cluster.map_or(1, |c| c.iter().map(|&e| u64::from(e)).product());
        ctas - ctas.checked_rem(of_cluster).unwrap_or(0)
    }

    /// Refuses a grid whose CTAs wait for others where a device has only `room` of them at once: none of those would end.
    ///
    /// # Errors
    /// They are too many.
    pub fn check_room(&self, kernel: &str, room: u64) -> Result<(), RuntimeError> {
        let ctas: u128 = self.grid.iter().map(|&extent| u128::from(extent)).product();
        if !self.resident || ctas <= u128::from(room) {
            return Ok(());
        }
        let fault = format!("{ctas} CTAs that wait for others, and the device has {room} at once");
        Err(RuntimeError::Shape { kernel: kernel.to_owned(), fault })
    }
}

/// What a parameter gets.
#[derive(Debug, Clone, Copy)]
pub enum Value<'b> {
    /// A buffer.
    Buffer(&'b Buffer),
    /// A value.
    Scalar(Scalar),
    /// Memory of ranks: the table of where it is on each.
    Ranks(&'b Buffer),
}

/// A parameter's name and what it gets.
pub type Given<'b> = (&'b str, Value<'b>);

/// Bytes that a parameter has in the machine code: an address, or the scalar itself.
pub fn parameter_bytes(param: &ParamSpec) -> usize {
    match param.access {
        Access::Scalar => param.dtype.bytes().unwrap_or(1) as usize,
        Access::Static
        | Access::Input
        | Access::Output
        | Access::Inout
        | Access::Scratch
        | Access::Peer
        | Access::Multicast => 8,
    }
}

/// Bytes of a tensor map.
const MAP_BYTES: usize = 128;

/// Compares the parameters that a kernel shall have with those that its machine code has.
///
/// # Errors
/// The first difference.
pub fn check_layout(
    kernel: &str,
    signature: &Signature,
    found: &[usize],
) -> Result<(), RuntimeError> {
    let differs = |fault: String| RuntimeError::Layout { kernel: kernel.to_owned(), fault };
    let wanted = signature.params.len() + signature.maps.len();
    if wanted != found.len() {
        let found = found.len();
        return Err(differs(format!("{found} parameters, {wanted} are described")));
    }
    let maps = found.iter().skip(signature.params.len());
    if let Some(&found) = maps.clone().find(|&&found| found != MAP_BYTES) {
        return Err(differs(format!("a tensor map has {found} bytes, not {MAP_BYTES}")));
    }
    for (param, &found) in signature.params.iter().zip(found) {
        let wanted = parameter_bytes(param);
        if found != wanted {
            let name = &param.name;
            return Err(differs(format!("`{name}` has {found} bytes, {wanted} are described")));
        }
    }
    Ok(())
}

/// Refuses kernels that take memory which this runtime does not set up.
///
/// # Errors
/// A parameter is a multicast address.
pub fn check_memory(kernel: &str, signature: &Signature) -> Result<(), RuntimeError> {
    let found = signature.params.iter().find(|param| param.access == Access::Multicast);
    found.map_or(Ok(()), |param| Err(no_multicast(kernel, &param.name)))
}

/// No multicast objects of the driver are made here.
fn no_multicast(kernel: &str, param: &str) -> RuntimeError {
    RuntimeError::Unsupported(format!(
        "NVLink multicast, which `{param}` of {kernel} is an address of: this runtime does not set it up"
    ))
}

/// What a check sees of a value.
#[derive(Debug, Clone, Copy)]
enum Seen<'b> {
    Memory { name: &'b str, dtype: DType, elements: u64, address: u64 },
    Scalar(Scalar),
    Ranks { address: u64 },
}

impl<'b> From<Value<'b>> for Seen<'b> {
    fn from(value: Value<'b>) -> Seen<'b> {
        match value {
            Value::Buffer(buffer) => Seen::Memory {
                name: buffer.name(),
                dtype: buffer.dtype(),
                elements: buffer.elements(),
                address: buffer.address(),
            },
            Value::Scalar(value) => Seen::Scalar(value),
            Value::Ranks(table) => Seen::Ranks { address: table.address() },
        }
    }
}

/// The parameters of a launch in the order of the machine code, eight bytes each.
///
/// # Errors
/// A parameter that is missing, given twice, unknown, or of another kind, type or size.
pub fn pack(
    kernel: &str,
    signature: &Signature,
    given: &[Given<'_>],
) -> Result<Vec<u64>, RuntimeError> {
    let seen: Vec<(&str, Seen<'_>)> =
        given.iter().map(|&(name, value)| (name, Seen::from(value))).collect();
    pack_seen(kernel, signature, &seen)
}

fn pack_seen(
    kernel: &str,
    signature: &Signature,
    given: &[(&str, Seen<'_>)],
) -> Result<Vec<u64>, RuntimeError> {
    check_memory(kernel, signature)?;
    let refused = |fault: String| RuntimeError::Arguments { kernel: kernel.to_owned(), fault };
    for (at, (name, _)) in given.iter().enumerate() {
        if signature.param(name).is_none() {
            return Err(refused(format!("there is no parameter `{name}`")));
        }
        if given[..at].iter().any(|(other, _)| other == name) {
            return Err(refused(format!("`{name}` is given twice")));
        }
    }
    let mut cells = Vec::with_capacity(signature.params.len());
    for param in &signature.params {
        let value = given.iter().find(|(name, _)| *name == param.name).map(|(_, value)| *value);
        let name = &param.name;
        let is_scalar = param.access == Access::Scalar;
        let cell = match value {
            None => Err(format!("`{name}` is not given")),
            Some(Seen::Ranks { address }) if param.access == Access::Peer => Ok(address),
            Some(Seen::Ranks { .. }) => Err(format!("`{name}` is no memory of ranks")),
            Some(Seen::Memory { .. } | Seen::Scalar(_)) if param.access == Access::Peer => {
                Err(format!("`{name}` is memory of ranks, and takes their table"))
            }
            Some(Seen::Scalar(value)) if !is_scalar => {
                Err(format!("`{name}` is a buffer, not a scalar of {}", value.dtype()))
            }
            Some(Seen::Scalar(value)) if value.dtype() == param.dtype => Ok(value.code()),
            Some(Seen::Scalar(value)) => {
                Err(format!("`{name}` is {}, not {}", param.dtype, value.dtype()))
            }
            Some(Seen::Memory { .. }) if is_scalar => {
                Err(format!("`{name}` is a scalar, not a buffer"))
            }
            Some(Seen::Memory { name: buffer, dtype, elements: found, address }) => {
                elements(param, given).and_then(|wanted| {
                    if dtype == param.dtype && found == wanted {
                        return Ok(address);
                    }
                    let of = param.dtype;
                    Err(format!(
                        "`{name}` is {wanted} elements of {of}; `{buffer}` has {found} of {dtype}"
                    ))
                })
            }
        };
        cells.push(cell.map_err(refused)?);
    }
    Ok(cells)
}

/// Elements that a parameter has with these scalars.
fn elements(param: &ParamSpec, given: &[(&str, Seen<'_>)]) -> Result<u64, String> {
    let mut all = Some(1u64);
    for extent in &param.shape {
        let extent = match extent {
            ExtentSpec::Const(extent) => *extent,
            ExtentSpec::Scalar(scalar) => {
                let value = given.iter().find_map(|(name, value)| match value {
                    Seen::Scalar(value) if name == scalar => value.integer(),
                    Seen::Scalar(_) | Seen::Memory { .. } | Seen::Ranks { .. } => None,
                });
                value.and_then(|value| u64::try_from(value).ok()).ok_or_else(|| {
                    format!("the extent `{scalar}` of `{}` is no size", param.name)
                })?
            }
        };
        all = all.and_then(|n| n.checked_mul(extent));
    }
    all.ok_or_else(|| format!("`{}` has too many elements", param.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn param(name: &str, access: Access, dtype: DType, shape: &[ExtentSpec]) -> ParamSpec {
        ParamSpec::new(name, access, dtype, shape.to_vec())
    }

    fn signature() -> Signature {
        let rows = ExtentSpec::Scalar("rows".to_owned());
        let params = vec![
            param("W", Access::Static, DType::Bf16, &[ExtentSpec::Const(4), rows]),
            param("nothing", Access::Input, DType::F32, &[ExtentSpec::Const(0)]),
            param("rows", Access::Scalar, DType::I32, &[]),
            param("eps", Access::Scalar, DType::F32, &[]),
        ];
        Signature::new(params, true)
    }

    fn memory(dtype: DType, elements: u64) -> Seen<'static> {
        let address = if elements == 0 { 0 } else { 0x1000 };
        Seen::Memory { name: "weights", dtype, elements, address }
    }

    fn right() -> Vec<(&'static str, Seen<'static>)> {
        vec![
            ("eps", Seen::Scalar(Scalar::F32(1.0))),
            ("W", memory(DType::Bf16, 12)),
            ("rows", Seen::Scalar(Scalar::I32(3))),
            ("nothing", memory(DType::F32, 0)),
        ]
    }

    #[test]
    fn cells_stand_in_the_order_of_the_parameters() {
        let cells = pack_seen("gemv", &signature(), &right()).unwrap();
        assert_eq!(cells, [0x1000, 0, 3, u64::from(1.0f32.to_bits())]);
    }

    #[test]
    fn arguments_that_do_not_fit_are_refused() {
        let refused = |given: &[(&str, Seen<'_>)]| {
            let error = pack_seen("gemv", &signature(), given).unwrap_err();
            assert_eq!(error.code().name(), "R0305");
            error.to_string()
        };
        let with = |at: usize, given: (&'static str, Seen<'static>)| {
            let mut all = right();
            all[at] = given;
            all
        };
        assert_eq!(refused(&right()[..3]), "gemv: `nothing` is not given");
        let twice = with(3, ("W", memory(DType::Bf16, 12)));
        assert_eq!(refused(&twice), "gemv: `W` is given twice");
        let unknown = with(0, ("beta", Seen::Scalar(Scalar::F32(1.0))));
        assert_eq!(refused(&unknown), "gemv: there is no parameter `beta`");
        let short = with(1, ("W", memory(DType::Bf16, 8)));
        let text = "gemv: `W` is 12 elements of bf16; `weights` has 8 of bf16";
        assert_eq!(refused(&short), text);
        let other = with(1, ("W", memory(DType::F16, 12)));
        assert!(refused(&other).ends_with("has 12 of f16"));
        let scalar = with(1, ("W", Seen::Scalar(Scalar::I32(1))));
        assert_eq!(refused(&scalar), "gemv: `W` is a buffer, not a scalar of i32");
        let kind = with(2, ("rows", Seen::Scalar(Scalar::F32(3.0))));
        assert_eq!(refused(&kind), "gemv: the extent `rows` of `W` is no size");
        let kind = with(0, ("eps", Seen::Scalar(Scalar::I32(3))));
        assert_eq!(refused(&kind), "gemv: `eps` is f32, not i32");
        let buffer = with(0, ("eps", memory(DType::F32, 1)));
        assert_eq!(refused(&buffer), "gemv: `eps` is a scalar, not a buffer");
        let table = with(1, ("W", Seen::Ranks { address: 16 }));
        assert_eq!(refused(&table), "gemv: `W` is no memory of ranks");
        let negative = with(2, ("rows", Seen::Scalar(Scalar::I32(-1))));
        assert_eq!(refused(&negative), "gemv: the extent `rows` of `W` is no size");
    }

    #[test]
    fn memory_of_ranks_takes_a_table() {
        let inbox = [ExtentSpec::Const(2), ExtentSpec::Const(8)];
        let params = vec![param("inbox", Access::Peer, DType::F32, &inbox)];
        let signature = Signature::new(params, false);
        let given = [("inbox", Seen::Ranks { address: 0x2000 })];
        assert_eq!(pack_seen("push", &signature, &given).unwrap(), [0x2000]);
        let buffer = [("inbox", memory(DType::F32, 16))];
        let error = pack_seen("push", &signature, &buffer).unwrap_err().to_string();
        assert_eq!(error, "push: `inbox` is memory of ranks, and takes their table");
    }

    #[test]
    fn multicast_addresses_are_refused_before_anything_is_loaded_or_bound() {
        let all = [ExtentSpec::Const(2), ExtentSpec::Const(8)];
        let params = vec![
            param("inbox", Access::Peer, DType::F32, &all),
            param("all", Access::Multicast, DType::F32, &all),
        ];
        let signature = Signature::new(params, false);
        let loaded = check_memory("push", &signature).unwrap_err();
        assert_eq!(loaded.code().name(), "R0308");
        let given = [("inbox", Seen::Ranks { address: 0x2000 })];
        let bound = pack_seen("push", &signature, &given).unwrap_err();
        for error in [loaded, bound] {
            assert_eq!(
                error.to_string(),
                "not supported in this version: NVLink multicast, which `all` of push is an address of: this runtime \
                 does not set it up"
            );
        }
    }

    #[test]
    fn machine_code_must_have_the_described_parameters() {
        check_layout("gemv", &signature(), &[8, 8, 4, 4]).unwrap();
        let differs = |found: &[usize]| {
            let error = check_layout("gemv", &signature(), found).unwrap_err();
            assert_eq!(error.code().name(), "R0304");
            error.to_string()
        };
        assert!(differs(&[8, 8, 4]).ends_with("3 parameters, 4 are described"));
        assert!(differs(&[8, 8, 8, 4]).ends_with("`rows` has 8 bytes, 4 are described"));
    }

    #[test]
    fn shapes_are_those_that_a_device_takes() {
        let device = DeviceInfo {
            ordinal: 0,
            name: "a device".to_owned(),
            capability: (9, 0),
            multiprocessors: 132,
            memory_bytes: 1 << 37,
            l2_bytes: 50 << 20,
            shared_bytes_of_block: 227 << 10,
            threads_of_block: 1024,
        };
        let right = LaunchShape {
            grid: [8, 2, 1],
            threads: 128,
            dynamic_shared_bytes: 200 << 10,
            tensor_columns: 0,
            cluster: Some([2, 1, 1]),
            resident: false,
        };
        right.check("gemv", &device, 1024, 256).unwrap();
        let refused = |shape: LaunchShape| {
            let error = shape.check("gemv", &device, 1024, 256).unwrap_err();
            assert_eq!(error.code().name(), "R0306");
            error.to_string()
        };
        assert!(refused(LaunchShape { grid: [8, 0, 1], ..right }).contains("0 CTAs along y"));
        assert!(refused(LaunchShape { grid: [8, 1 << 16, 1], ..right }).contains("along y"));
        assert!(refused(LaunchShape { threads: 512, ..right }).contains("of 1 to 256"));
        let much = LaunchShape { dynamic_shared_bytes: 227 << 10, ..right };
        assert!(refused(much).contains("bytes of shared memory, of 232448 at most"));
        assert!(refused(LaunchShape { cluster: Some([3, 1, 1]), ..right }).contains("no multiple"));
        assert!(refused(LaunchShape { cluster: Some([4, 4, 1]), ..right }).contains("16 CTAs"));
    }

    #[test]
    fn ctas_that_wait_for_each_other_are_there_at_once() {
        let waits = LaunchShape {
            grid: [8, 2, 1],
            threads: 128,
            dynamic_shared_bytes: 0,
            tensor_columns: 0,
            cluster: None,
            resident: true,
        };
        waits.check_room("fold", 16).unwrap();
        let error = waits.check_room("fold", 15).unwrap_err();
        assert_eq!(error.code().name(), "R0306");
        assert!(error.to_string().contains("16 CTAs that wait for others"), "{error}");
        LaunchShape { resident: false, ..waits }.check_room("fold", 15).unwrap();
        let most = LaunchShape { grid: GRID, ..waits };
        most.check_room("fold", u64::MAX).unwrap();
    }

    #[test]
    fn a_multiprocessor_has_as_many_ctas_as_its_tensor_memory() {
        let alone = LaunchShape {
            grid: [296, 1, 1],
            threads: 256,
            dynamic_shared_bytes: 0,
            tensor_columns: 512,
            cluster: None,
            resident: true,
        };
        assert_eq!(alone.ctas_in_tensor_memory(148), 148);
        assert_eq!(LaunchShape { tensor_columns: 256, ..alone }.ctas_in_tensor_memory(148), 296);
        assert_eq!(LaunchShape { tensor_columns: 0, ..alone }.ctas_in_tensor_memory(148), u64::MAX);
        let pairs = LaunchShape { cluster: Some([2, 1, 1]), ..alone };
        assert_eq!(pairs.ctas_in_tensor_memory(147), 146);
        alone.check_room("fold", alone.ctas_in_tensor_memory(148)).unwrap_err();
    }
}
