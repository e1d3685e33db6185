//! Decoding on a CUDA device: which device, which bundle, and a plan that the bundle has the kernels of.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kernel_abi::bundle::{Bundle, Policy};
use kernel_runtime::{CudaExecutor, CudaOptions, Device, FoundPlan, KernelImage};
use kimi_k3::Config;
use kimi_k3::plan::{DecodeOptions, DecodePlan, PAGE};

use crate::args::Cuda;
use crate::error::CliError;

/// The kernel whose binding `NP` says how many pages a request can have.
const PAGED: &str = "mla_cache_insert";

/// A device and the kernels for it.
#[derive(Debug, Clone)]
pub(crate) struct CudaSource {
    pub(crate) device: Device,
    pub(crate) bundle: Arc<Bundle>,
    options: CudaOptions,
}

/// Opens a bundle.
///
/// # Errors
/// It is missing or refused.
pub(crate) fn open_bundle(path: &Path, options: Cuda) -> Result<Bundle, CliError> {
    let bundle = Bundle::open(path, Policy { allow_unaudited: options.allow_unaudited })?;
    tracing::info!(path = %path.display(), maker = ?bundle.maker(), "opened the bundle");
    Ok(bundle)
}

impl CudaSource {
    /// Opens the device for the kernels of a bundle.
    ///
    /// # Errors
    /// There is no such device, it is not free, or there is no bundle.
    pub(crate) fn open(
        ordinal: u32,
        bundle: Option<Bundle>,
        options: Cuda,
    ) -> Result<CudaSource, CliError> {
        let device = Device::open(ordinal)?;
        let bundle = bundle.ok_or(CliError::NoBundle)?;
        let limit = Duration::from_secs(options.step_timeout);
        let options = CudaOptions { poison: options.poison, limit, ..CudaOptions::STANDARD };
        Ok(CudaSource { device, bundle: Arc::new(bundle), options })
    }

    /// The plan of a step for requests of at least `options.context` positions, the least that the bundle has the
    /// kernels of: how many pages a request can have is compiled into them.
    ///
    /// # Errors
    /// The bundle has no kernels for such a step.
    pub(crate) fn plan(
        &self,
        config: &Config,
        options: DecodeOptions,
    ) -> Result<DecodePlan, CliError> {
        let pages = options.context.div_ceil(PAGE);
        let there: BTreeSet<u64> = self
            .bundle
            .kernels()
            .filter(|kernel| kernel.head().kernel == PAGED)
            .filter_map(|kernel| u64::try_from(*kernel.head().bindings.get("NP")?).ok())
            .filter(|&there| there >= pages)
            .collect();
        let mut first = None;
        for pages in there {
            let Some(context) = pages.checked_mul(PAGE) else { continue };
            let plan = DecodePlan::new(config, DecodeOptions { context, ..options });
            match plan.map_err(CliError::from).and_then(|plan| self.check(plan)) {
                Ok(plan) => return Ok(plan),
                Err(error) => drop(first.get_or_insert(error)),
            }
        }
        match first {
            Some(error) => Err(error),
            // The plan for just as many names the kernel that is missing.
            None => self.check(DecodePlan::new(config, options)?),
        }
    }

    /// A plan whose kernels are all there.
    fn check(&self, plan: DecodePlan) -> Result<DecodePlan, CliError> {
        for key in plan.plan.kernels() {
            KernelImage::find(&self.bundle, key, self.device.info())?;
        }
        Ok(plan)
    }

    /// Prepares an executor.
    ///
    /// # Errors
    /// The plan is refused, or the device has too little memory.
    pub(crate) fn executor(&self, plan: kernel_abi::plan::Plan) -> Result<CudaExecutor, CliError> {
        let find = |key: &_| KernelImage::find(&self.bundle, key, self.device.info());
        let found = FoundPlan::new(plan, find)?;
        Ok(CudaExecutor::of_found(&self.device, found, self.options)?)
    }
}
