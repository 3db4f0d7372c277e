// SPDX-License-Identifier: MIT
use crate::call::{c_string, check, created, name};
use crate::Result;
use mainarch_sys as sys;
use std::ffi::CStr;
use std::fmt;
use std::os::raw::{c_char, c_void};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr::NonNull;
use std::sync::Arc;

/// How talkative a line of log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum LogLevel {
    /// Something failed.
    Error,
    /// Something is not as it should be.
    Warning,
    /// What was opened, and how large.
    Info,
    /// All else, and levels of a newer library.
    Debug,
}

impl LogLevel {
    fn raw(self) -> i32 {
        match self {
            LogLevel::Error => sys::MAINARCH_LOG_ERROR,
            LogLevel::Warning => sys::MAINARCH_LOG_WARNING,
            LogLevel::Info => sys::MAINARCH_LOG_INFO,
            LogLevel::Debug => sys::MAINARCH_LOG_DEBUG,
        }
    }

    fn from_raw(level: i32) -> LogLevel {
        match level {
            sys::MAINARCH_LOG_ERROR => LogLevel::Error,
            sys::MAINARCH_LOG_WARNING => LogLevel::Warning,
            sys::MAINARCH_LOG_INFO => LogLevel::Info,
            _ => LogLevel::Debug,
        }
    }
}

/// Takes one line of log, without a newline, on the thread whose call of the library it is about.
/// It must not call the library. A panic in it ends there.
pub type LogFn = dyn Fn(LogLevel, &str) + Send + Sync;

/// What the library's `log_user` points to. Every handle of a group holds it, because children log
/// to the group's sink when the group is long gone.
pub(crate) struct LogSink(Box<LogFn>);

pub(crate) type SharedLog = Option<Arc<LogSink>>;

unsafe extern "C" fn log_line(user: *mut c_void, level: i32, line: *const c_char) {
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: `user` is the sink that the handles hold; `line` lives for this call.
        let (sink, line) = unsafe { (&*user.cast::<LogSink>(), CStr::from_ptr(line)) };
        (sink.0)(LogLevel::from_raw(level), &line.to_string_lossy());
    }));
    if let Err(payload) = outcome {
        std::mem::forget(payload); // its drop could panic as well
    }
}

/// How to open a [`Group`].
#[derive(Default)]
pub struct GroupOptions {
    /// CPU threads that compute, the caller's own among them, at most 1024; 0: one a core that this
    /// process may use, within its control group's quota.
    pub threads: u32,
    /// Read no environment variable (`MAINARCH_LOG`, `MAINARCH_BACKEND`, `MAINARCH_DEVICES`).
    pub ignore_environment: bool,
    /// The most talkative level wanted; none: [`LogLevel::Info`].
    pub log_level: Option<LogLevel>,
    /// Where the log goes; none: nowhere. Dropped with the last handle of the group.
    pub log: Option<Box<LogFn>>,
}

impl fmt::Debug for GroupOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupOptions")
            .field("threads", &self.threads)
            .field("ignore_environment", &self.ignore_environment)
            .field("log_level", &self.log_level)
            .field("log", &self.log.is_some())
            .finish()
    }
}

/// Devices: GPUs, or the CPU. Any number of threads may use one at once.
#[derive(Debug)]
pub struct Group {
    pub(crate) raw: NonNull<sys::mainarch_group>,
    pub(crate) log: SharedLog,
}

// SAFETY: "group, model, tokenizer: any number of threads at once", and a log sink is Send + Sync.
unsafe impl Send for Group {}
unsafe impl Sync for Group {}

impl fmt::Debug for LogSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LogSink")
    }
}

/// About one device of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// Bytes of the device; for the CPU, of the machine.
    pub memory_bytes: u64,
    /// Of these, free now.
    pub free_bytes: u64,
    /// Compute units of a GPU; for the CPU, threads that compute.
    pub compute_units: u32,
    /// "AMD Instinct MI355X".
    pub name: String,
    /// "gfx950"; for the CPU the kernels in use, such as "avx2".
    pub isa: String,
}

impl DeviceInfo {
    fn from_raw(info: &sys::mainarch_device_info) -> DeviceInfo {
        DeviceInfo {
            memory_bytes: info.memory_bytes,
            free_bytes: info.free_bytes,
            compute_units: info.compute_units,
            name: name(&info.name),
            isa: name(&info.isa),
        }
    }
}

/// A device of this machine, before it is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Device {
    /// The string that opens it: "cpu", "gpu:0".
    pub device: String,
    /// What is known of it, also when it cannot be used.
    pub info: DeviceInfo,
    /// Why it cannot be used, if so.
    pub unusable: Option<String>,
}

/// The devices of this machine: the CPU, then the GPUs by number. Nothing stays open.
///
/// # Errors
///
/// `Io`, `Busy` (GPUs come and go: ask again).
pub fn devices() -> Result<Vec<Device>> {
    let mut list = Vec::new();
    loop {
        let mut raw = sys::mainarch_device_info::default();
        // SAFETY: all pointers live for the call.
        match check(|error| unsafe { sys::mainarch_device_get(list.len(), &mut raw, error) }) {
            Ok(_) => list.push(Device {
                device: name(&raw.device),
                info: DeviceInfo::from_raw(&raw),
                unusable: (raw.status != sys::MAINARCH_OK).then(|| name(&raw.reason)),
            }),
            Err(error) if error.kind() == crate::ErrorKind::NotFound => return Ok(list),
            Err(error) => return Err(error),
        }
    }
}

impl Group {
    /// Opens devices: "cpu", "cpu:N" (1, 2, 4 or 8 ranks, with the same results), "gpu", "gpu:0-7",
    /// "sim:gfx950x8", or "" for what the environment says, else the CPU.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` (a device string or environment variable that is wrong), `NoDevice`,
    /// `Permission`; of GPUs also `Io`, `Busy`, `OutOfDeviceMemory`, `DeviceLost`.
    pub fn open(device: &str) -> Result<Group> {
        Group::open_with(device, GroupOptions::default())
    }

    /// The same with options.
    pub fn open_with(device: &str, options: GroupOptions) -> Result<Group> {
        let device = c_string("device", device.as_bytes())?;
        let log: SharedLog = options.log.map(|sink| Arc::new(LogSink(sink)));
        let raw_options = sys::mainarch_group_options {
            flags: u64::from(options.ignore_environment) * sys::MAINARCH_GROUP_IGNORE_ENVIRONMENT,
            threads: options.threads,
            log_level: options.log_level.map_or(0, LogLevel::raw),
            log: log.as_ref().map(|_| log_line as unsafe extern "C" fn(_, _, _)),
            log_user: log.as_ref().map_or(std::ptr::null_mut(), |log| Arc::as_ptr(log) as *mut _),
            ..Default::default()
        };
        let mut raw = std::ptr::null_mut();
        // SAFETY: all pointers live for the call, and the sink for as long as the handles.
        check(|error| unsafe {
            sys::mainarch_group_open(device.as_ptr(), &raw_options, &mut raw, error)
        })?;
        Ok(Group { raw: created(raw)?, log })
    }

    /// How many devices (ranks) there are; 0 after a fork.
    pub fn device_count(&self) -> usize {
        // SAFETY: a live handle.
        unsafe { sys::mainarch_group_device_count(self.raw.as_ptr()) }
    }

    /// About device `index`, below [`Group::device_count`].
    ///
    /// # Errors
    ///
    /// `InvalidArgument` (no such index).
    pub fn device_info(&self, index: usize) -> Result<DeviceInfo> {
        let mut info = sys::mainarch_device_info::default();
        // SAFETY: a live handle and a struct of the caller.
        check(|error| unsafe {
            sys::mainarch_group_device_info_get(self.raw.as_ptr(), index, &mut info, error)
        })?;
        Ok(DeviceInfo::from_raw(&info))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // SAFETY: made by open, destroyed here only. Models made from it go on working.
        unsafe { sys::mainarch_group_destroy(self.raw.as_ptr()) }
    }
}
