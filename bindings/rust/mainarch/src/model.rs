// SPDX-License-Identifier: MIT
use crate::call::{c_string, check, created, fill, name};
use crate::group::SharedLog;
use crate::{Group, Result, SequenceOptions, Tokenizer};
use mainarch_sys as sys;
use std::any::Any;
use std::fmt;
use std::ops::ControlFlow;
use std::os::raw::{c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::path::Path;
use std::ptr::NonNull;

/// Told how many bytes of the weights are in place, of how many; a break cancels. On the calling
/// thread. It must not call the library.
pub type Progress<'a> = dyn FnMut(u64, u64) -> ControlFlow<()> + 'a;

/// How to open a [`Model`].
#[derive(Default)]
pub struct ModelOptions<'a> {
    /// CPU: multiply straight from the mapped files. Opens at once and takes no memory of its own;
    /// steps are slower, and results the same.
    pub in_place: bool,
    /// Weights of the layer that drafts are placed, too, where the checkpoint has one:
    /// [`Drafts::Head`](crate::Drafts).
    pub draft_head: bool,
    /// For vectors, not to generate: [`Engine::embed`](crate::Engine::embed). The head is left out, and
    /// logits are the final norm's output, `hidden_size` numbers. Not with `draft_head`.
    pub embed: bool,
    /// Told of the progress, and may cancel.
    pub progress: Option<&'a mut Progress<'a>>,
}

impl fmt::Debug for ModelOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelOptions")
            .field("in_place", &self.in_place)
            .field("draft_head", &self.draft_head)
            .field("embed", &self.embed)
            .field("progress", &self.progress.is_some())
            .finish()
    }
}

/// A checked checkpoint, its weights placed on a group. Any number of threads may use one at once.
#[derive(Debug)]
pub struct Model {
    pub(crate) raw: NonNull<sys::mainarch_model>,
    pub(crate) log: SharedLog,
}

// SAFETY: "group, model, tokenizer: any number of threads at once".
unsafe impl Send for Model {}
unsafe impl Sync for Model {}

/// About a model.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ModelInfo {
    /// Elements of all weights; shared (tied) ones count once.
    pub parameter_count: u64,
    /// Bytes of memory for weights, over all devices; mapped files not counted.
    pub weight_bytes: u64,
    /// Bytes of the files of weights, which are mapped.
    pub file_bytes: u64,
    /// Logits a token; tokens are below it. May exceed the tokenizer's.
    pub vocab_size: u32,
    /// Tokens of the longest sequence the model was made for.
    pub max_tokens: u32,
    /// Layers.
    pub layers: u32,
    /// Elements of the residual.
    pub hidden_size: u32,
    /// Experts a layer; 0: a dense model.
    pub experts: u32,
    /// Experts that a token goes through.
    pub experts_per_token: u32,
    /// "qwen3_moe".
    pub architecture: String,
    /// Of the weights, in the order of their bytes: "mxfp4 bf16".
    pub formats: String,
}

/// What the library's `progress_user` points to.
struct Told<'a, 'b> {
    progress: &'a mut Progress<'b>,
    panic: Option<Box<dyn Any + Send>>,
}

unsafe extern "C" fn tell(user: *mut c_void, done: u64, total: u64) -> c_int {
    // SAFETY: `open_with` passes it, on this thread, for the length of its call.
    let told = unsafe { &mut *user.cast::<Told<'_, '_>>() };
    match catch_unwind(AssertUnwindSafe(|| (told.progress)(done, total))) {
        Ok(ControlFlow::Continue(())) => 0,
        Ok(ControlFlow::Break(())) => 1,
        Err(payload) => {
            told.panic = Some(payload);
            1
        }
    }
}

impl Model {
    /// Opens a Hugging Face checkpoint directory (config.json and safetensors) or a GGUF file and
    /// places its weights on the devices of `group`. The files are mapped as long as the model lives,
    /// and none of their bytes is trusted.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Io` or `Permission` (a file), `BadModel` (names file, tensor or key),
    /// `Unsupported` (an architecture, format or feature), `OutOfDeviceMemory`, `DeviceLost`.
    pub fn open(group: &Group, path: impl AsRef<Path>) -> Result<Model> {
        Model::open_with(group, path, ModelOptions::default())
    }

    /// The same with options.
    ///
    /// # Errors
    ///
    /// Those of [`Model::open`], and `Cancelled` (by `progress`).
    ///
    /// # Panics
    ///
    /// Only with the panic of `progress`.
    pub fn open_with(
        group: &Group,
        path: impl AsRef<Path>,
        options: ModelOptions<'_>,
    ) -> Result<Model> {
        let path = c_string("path", path.as_ref().as_os_str().as_bytes())?;
        let mut raw_options = sys::mainarch_model_options {
            flags: (u64::from(options.in_place) * sys::MAINARCH_MODEL_IN_PLACE)
                | (u64::from(options.draft_head) * sys::MAINARCH_MODEL_DRAFT_HEAD)
                | (u64::from(options.embed) * sys::MAINARCH_MODEL_EMBED),
            ..Default::default()
        };
        let mut told = options.progress.map(|progress| Told { progress, panic: None });
        if let Some(told) = &mut told {
            raw_options.progress = Some(tell);
            raw_options.progress_user = (told as *mut Told<'_, '_>).cast();
        }
        let mut raw = std::ptr::null_mut();
        // SAFETY: a live handle; all pointers live for the call.
        let opened = check(|error| unsafe {
            sys::mainarch_model_open(
                group.raw.as_ptr(),
                path.as_ptr(),
                &raw_options,
                &mut raw,
                error,
            )
        });
        let model = opened.and_then(|_| Ok(Model { raw: created(raw)?, log: group.log.clone() }));
        if let Some(payload) = told.and_then(|told| told.panic) {
            drop(model);
            resume_unwind(payload);
        }
        model
    }

    /// About this model.
    ///
    /// # Errors
    ///
    /// `WrongProcess`.
    pub fn info(&self) -> Result<ModelInfo> {
        let mut info = sys::mainarch_model_info::default();
        // SAFETY: a live handle and a struct of the caller.
        check(|error| unsafe {
            sys::mainarch_model_info_get(self.raw.as_ptr(), &mut info, error)
        })?;
        Ok(ModelInfo {
            parameter_count: info.parameter_count,
            weight_bytes: info.weight_bytes,
            file_bytes: info.file_bytes,
            vocab_size: info.vocab_size,
            max_tokens: info.max_tokens,
            layers: info.layers,
            hidden_size: info.hidden_size,
            experts: info.experts,
            experts_per_token: info.experts_per_token,
            architecture: name(&info.architecture),
            formats: name(&info.formats),
        })
    }

    /// The tokens that end a turn, ascending. Sequences stop at them unless told otherwise.
    ///
    /// # Errors
    ///
    /// `WrongProcess`.
    pub fn end_tokens(&self) -> Result<Vec<u32>> {
        // SAFETY: a live handle; the buffer has that capacity.
        fill(8, 0, |tokens, capacity, count, error| unsafe {
            sys::mainarch_model_end_tokens(self.raw.as_ptr(), tokens, capacity, count, error)
        })
    }

    /// What the checkpoint recommends: temperature, top_k, top_p, min_p and repetition_penalty; the
    /// rest is as by default.
    ///
    /// # Errors
    ///
    /// `WrongProcess`.
    pub fn sequence_options(&self) -> Result<SequenceOptions> {
        let mut raw = sys::mainarch_sequence_options::default();
        // SAFETY: a live handle and a struct of the caller.
        check(|error| unsafe {
            sys::mainarch_model_sequence_options(self.raw.as_ptr(), &mut raw, error)
        })?;
        Ok(SequenceOptions {
            temperature: raw.temperature,
            top_k: raw.top_k,
            top_p: raw.top_p,
            min_p: raw.min_p,
            repetition_penalty: raw.repetition_penalty,
            ..Default::default()
        })
    }

    /// The tokenizer of the checkpoint. It is read anew by each call: make one and share it.
    ///
    /// # Errors
    ///
    /// `NotFound` (the checkpoint has none), `BadModel`, `Unsupported`.
    pub fn tokenizer(&self) -> Result<Tokenizer> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: a live handle.
        check(|error| unsafe {
            sys::mainarch_tokenizer_from_model(self.raw.as_ptr(), &mut raw, error)
        })?;
        Ok(Tokenizer { raw: created(raw)? })
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        // SAFETY: made by open, destroyed here only. Engines made from it go on working.
        unsafe { sys::mainarch_model_destroy(self.raw.as_ptr()) }
    }
}
