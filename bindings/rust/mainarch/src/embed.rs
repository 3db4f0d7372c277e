// SPDX-License-Identifier: MIT
use crate::call::{c_string, check, fill, fill_text, name};
use crate::{Engine, Model, Result};
use mainarch_sys as sys;

/// Of which tokens' vectors a text's is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Pooling {
    /// What the checkpoint says; without a word of it, the last.
    #[default]
    Default,
    /// The last token's.
    Last,
    /// The mean of all.
    Mean,
    /// The first token's ("cls").
    First,
}

/// What a checkpoint says of its vectors, in the files of the package sentence-transformers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EmbedInfo {
    /// Numbers of a vector.
    pub dimensions: u32,
    /// Never `Default`.
    pub pooling: Pooling,
    /// Vectors have a length of one.
    pub normalize: bool,
    /// There is a modules.json; without it pooling and normalize are what most such models have.
    pub stated: bool,
    /// False: tokens of the prompt do not count for a mean ([`EmbedOptions::skip_tokens`]).
    pub include_prompt: bool,
    /// Prompts that the checkpoint names.
    pub prompt_count: u32,
    /// The one for texts of no other use; empty: none.
    pub default_prompt: String,
}

/// How texts become vectors. The default is what the checkpoint says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EmbedOptions {
    /// Of which tokens.
    pub pooling: Pooling,
    /// To a length of one, or not; none: as the checkpoint says.
    pub normalize: Option<bool>,
    /// So many of the first numbers alone, normalised again; 0: all.
    pub dimensions: u32,
    /// As [`SequenceOptions::prefix_salt`](crate::SequenceOptions).
    pub prefix_salt: u64,
    /// Of a mean: so many of each text's first tokens do not count.
    pub skip_tokens: u32,
}

impl EmbedOptions {
    fn raw(&self) -> sys::mainarch_embed_options {
        sys::mainarch_embed_options {
            flags: match self.normalize {
                None => 0,
                Some(true) => sys::MAINARCH_EMBED_NORMALIZE,
                Some(false) => sys::MAINARCH_EMBED_RAW,
            },
            pooling: match self.pooling {
                Pooling::Default => sys::MAINARCH_POOLING_DEFAULT,
                Pooling::Last => sys::MAINARCH_POOLING_LAST,
                Pooling::Mean => sys::MAINARCH_POOLING_MEAN,
                Pooling::First => sys::MAINARCH_POOLING_FIRST,
            },
            dimensions: self.dimensions,
            prefix_salt: self.prefix_salt,
            skip_tokens: self.skip_tokens,
            ..Default::default()
        }
    }
}

impl Model {
    /// What the checkpoint says of its vectors. Its files are read anew by each call.
    ///
    /// # Errors
    ///
    /// `Io`, `Permission`, `BadModel` (names file and key), `Unsupported` (other poolings, a dense layer).
    pub fn embed_info(&self) -> Result<EmbedInfo> {
        let mut info = sys::mainarch_embed_info::default();
        // SAFETY: a live handle and a struct of the caller.
        check(|error| unsafe {
            sys::mainarch_model_embed_info_get(self.raw.as_ptr(), &mut info, error)
        })?;
        Ok(EmbedInfo {
            dimensions: info.dimensions,
            pooling: match info.pooling {
                sys::MAINARCH_POOLING_MEAN => Pooling::Mean,
                sys::MAINARCH_POOLING_FIRST => Pooling::First,
                _ => Pooling::Last,
            },
            normalize: info.normalize != 0,
            stated: info.stated != 0,
            include_prompt: info.include_prompt != 0,
            prompt_count: info.prompt_count,
            default_prompt: name(&info.default_prompt),
        })
    }

    /// What the checkpoint puts before a text for the use `name` ("query"); none is its default, and
    /// empty if it has none. Put it before the text, then encode both
    /// ([`Tokenizer::encode_around`](crate::Tokenizer::encode_around)).
    ///
    /// # Errors
    ///
    /// `NotFound` (names those that there are), and those of [`Model::embed_info`].
    pub fn embed_prompt(&self, name: Option<&str>) -> Result<String> {
        let name = name.map(|name| c_string("name", name.as_bytes())).transpose()?;
        let at = name.as_ref().map_or(std::ptr::null(), |name| name.as_ptr());
        // SAFETY: a live handle; the name lives for the call, the buffer has that capacity.
        fill_text(128, |text, capacity, length, error| unsafe {
            sys::mainarch_model_embed_prompt(self.raw.as_ptr(), at, text, capacity, length, error)
        })
    }
}

impl Engine {
    /// A vector of each text, of an engine whose model was opened with
    /// [`ModelOptions::embed`](crate::ModelOptions). Steps run on this thread until all are done; a
    /// [`Canceller`](crate::Canceller) ends it.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` (an empty text or a token outside the vocabulary, with its index; a model that
    /// generates; dimensions), `KvFull` (a text too long), `Busy` (every sequence is open), `BadModel` (a
    /// vector holds what is not a number), `Cancelled`, and those of [`Engine::step`].
    pub fn embed<T: AsRef<[u32]>>(
        &mut self,
        texts: &[T],
        options: &EmbedOptions,
    ) -> Result<Vec<Vec<f32>>> {
        let lengths: Vec<usize> = texts.iter().map(|text| text.as_ref().len()).collect();
        let tokens: Vec<u32> =
            texts.iter().flat_map(|text| text.as_ref().iter().copied()).collect();
        let raw = options.raw();
        // SAFETY: a live handle, this thread alone; arrays and buffer have these lengths.
        let numbers = fill(0, 0, |vectors, capacity, count, error| unsafe {
            sys::mainarch_engine_embed(
                self.at(),
                tokens.as_ptr(),
                lengths.as_ptr(),
                lengths.len(),
                &raw,
                vectors,
                capacity,
                count,
                error,
            )
        })?;
        if texts.is_empty() {
            return Ok(Vec::new());
        }
        Ok(numbers.chunks(numbers.len() / texts.len()).map(<[f32]>::to_vec).collect())
    }
}
