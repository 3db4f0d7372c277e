// SPDX-License-Identifier: MIT
use mainarch_sys as sys;
use std::{fmt, io};

/// What a call of this crate gives.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a call failed.
#[derive(Clone, PartialEq, Eq)]
pub struct Error {
    pub(crate) status: i32,
    pub(crate) os_errno: i32,
    pub(crate) device: u32,
    pub(crate) message: Box<str>,
}

/// The statuses that this crate knows by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A bug in the library; the message helps to find it.
    Internal,
    /// The message names the argument, value and limit.
    InvalidArgument,
    /// Understood, but not something this library does.
    Unsupported,
    /// No such file, token or sequence.
    NotFound,
    /// Not now: a step is in flight, or there are no logits.
    Busy,
    /// Never out of this crate's own calls, which ask again with a larger buffer.
    BufferTooSmall,
    /// As asked for.
    Cancelled,
    /// Memory, threads or descriptors of this machine.
    OutOfHostMemory,
    /// Memory of a device.
    OutOfDeviceMemory,
    /// The tokens could never fit, however long one waits.
    KvFull,
    /// A file could not be read; [`Error::os_errno`] says why.
    Io,
    /// A file of the checkpoint is damaged or contradicts itself.
    BadModel,
    /// No device as asked for.
    NoDevice,
    /// A device or file is there, but not for this user.
    Permission,
    /// Sticky: afterwards info, close and drop work, and all else gives this again.
    DeviceLost,
    /// The handle was made by a process that this is a fork of.
    WrongProcess,
    /// A status of a newer library; see [`Error::status`].
    Other,
}

impl Error {
    /// The number of the status, below 0: one of `MAINARCH_ERROR_*` in [`crate::sys`], or a newer
    /// one.
    pub fn status(&self) -> i32 {
        self.status
    }

    /// The same by name.
    pub fn kind(&self) -> ErrorKind {
        use ErrorKind::*;
        match self.status {
            sys::MAINARCH_ERROR_INTERNAL => Internal,
            sys::MAINARCH_ERROR_INVALID_ARGUMENT => InvalidArgument,
            sys::MAINARCH_ERROR_UNSUPPORTED => Unsupported,
            sys::MAINARCH_ERROR_NOT_FOUND => NotFound,
            sys::MAINARCH_ERROR_BUSY => Busy,
            sys::MAINARCH_ERROR_BUFFER_TOO_SMALL => BufferTooSmall,
            sys::MAINARCH_ERROR_CANCELLED => Cancelled,
            sys::MAINARCH_ERROR_OUT_OF_HOST_MEMORY => OutOfHostMemory,
            sys::MAINARCH_ERROR_OUT_OF_DEVICE_MEMORY => OutOfDeviceMemory,
            sys::MAINARCH_ERROR_KV_FULL => KvFull,
            sys::MAINARCH_ERROR_IO => Io,
            sys::MAINARCH_ERROR_BAD_MODEL => BadModel,
            sys::MAINARCH_ERROR_NO_DEVICE => NoDevice,
            sys::MAINARCH_ERROR_PERMISSION => Permission,
            sys::MAINARCH_ERROR_DEVICE_LOST => DeviceLost,
            sys::MAINARCH_ERROR_WRONG_PROCESS => WrongProcess,
            _ => Other,
        }
    }

    /// `errno` of the system call that failed, if one did.
    pub fn os_errno(&self) -> Option<i32> {
        (self.os_errno != 0).then_some(self.os_errno)
    }

    /// Index in the group of the device concerned, if one is.
    pub fn device(&self) -> Option<u32> {
        (self.device != u32::MAX).then_some(self.device)
    }

    /// One line, lower case, that names the file, field, value and limit.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// One that this crate finds before the library sees the arguments.
    pub(crate) fn invalid(message: impl Into<Box<str>>) -> Error {
        Error {
            status: sys::MAINARCH_ERROR_INVALID_ARGUMENT,
            os_errno: 0,
            device: u32::MAX,
            message: message.into(),
        }
    }

    #[cold]
    pub(crate) fn from_raw(raw: &sys::mainarch_error) -> Error {
        let bytes = raw.message.iter().map(|&c| c as u8).take_while(|&c| c != 0);
        let bytes: Vec<u8> = bytes.collect();
        Error {
            status: raw.status,
            os_errno: raw.os_errno,
            device: raw.device,
            message: String::from_utf8_lossy(&bytes).into(),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: any number; static text, never null.
        let status = unsafe { std::ffi::CStr::from_ptr(sys::mainarch_status_string(self.status)) };
        write!(f, "{}: {}", status.to_string_lossy(), self.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.kind())
            .field("status", &self.status)
            .field("os_errno", &self.os_errno())
            .field("device", &self.device())
            .field("message", &self.message)
            .finish()
    }
}

impl std::error::Error for Error {}

/// Keeps the kind of the system's error where there is one.
impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        let kind = match (error.os_errno(), error.kind()) {
            (Some(errno), _) => io::Error::from_raw_os_error(errno).kind(),
            (None, ErrorKind::NotFound) => io::ErrorKind::NotFound,
            (None, ErrorKind::Permission) => io::ErrorKind::PermissionDenied,
            (None, ErrorKind::InvalidArgument) => io::ErrorKind::InvalidInput,
            (None, ErrorKind::BadModel) => io::ErrorKind::InvalidData,
            (None, ErrorKind::Cancelled) => io::ErrorKind::Interrupted,
            (None, ErrorKind::Unsupported) => io::ErrorKind::Unsupported,
            _ => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}
