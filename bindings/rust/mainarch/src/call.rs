// SPDX-License-Identifier: MIT
//! What all calls of the library have in common: the error in the caller's memory, and buffers
//! that grow until the result fits.

use crate::{Error, Result};
use mainarch_sys as sys;
use std::ffi::CString;
use std::mem::MaybeUninit;
use std::os::raw::c_char;

/// A status of 0 or above, or the error. `call` hands the pointer to one function of the library.
#[inline]
pub(crate) fn check(call: impl FnOnce(*mut sys::mainarch_error) -> i32) -> Result<i32> {
    let mut error = MaybeUninit::<sys::mainarch_error>::uninit();
    let status = call(error.as_mut_ptr());
    if status >= 0 {
        return Ok(status);
    }
    // SAFETY: the library fills it whenever the status is below 0.
    Err(Error::from_raw(unsafe { error.assume_init_ref() }))
}

/// Elements that the library writes, and how many there are. `extra` is what a buffer needs beyond
/// them: the zero byte of a text. `call` gets buffer, capacity, count and error.
pub(crate) fn fill<T: Copy>(
    guess: usize,
    extra: usize,
    mut call: impl FnMut(*mut T, usize, *mut usize, *mut sys::mainarch_error) -> i32,
) -> Result<Vec<T>> {
    let mut capacity = guess + extra;
    loop {
        let mut buffer = Vec::<T>::with_capacity(capacity);
        let mut count = 0;
        match check(|error| call(buffer.as_mut_ptr(), capacity, &mut count, error)) {
            Ok(_) => {
                assert!(count <= capacity, "the library counts beyond its buffer");
                // SAFETY: the library has written that many.
                unsafe { buffer.set_len(count) };
                return Ok(buffer);
            }
            Err(error) => {
                let needed = count.saturating_add(extra);
                if error.status != sys::MAINARCH_ERROR_BUFFER_TOO_SMALL || needed <= capacity {
                    return Err(error);
                }
                capacity = needed;
            }
        }
    }
}

/// The same for text, which the library promises to be UTF-8.
pub(crate) fn fill_text(
    guess: usize,
    mut call: impl FnMut(*mut c_char, usize, *mut usize, *mut sys::mainarch_error) -> i32,
) -> Result<String> {
    let bytes = fill::<u8>(guess, 1, |at, capacity, length, error| {
        call(at.cast(), capacity, length, error)
    })?;
    Ok(String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

/// A zero-terminated copy; `what` is for the message when there is a zero inside.
pub(crate) fn c_string(what: &str, text: &[u8]) -> Result<CString> {
    CString::new(text).map_err(|error| {
        Error::invalid(format!("{what} has a zero byte at {}", error.nul_position()))
    })
}

/// A name in an info struct, zero-terminated by the library.
pub(crate) fn name(field: &[c_char]) -> String {
    let bytes: Vec<u8> = field.iter().map(|&c| c as u8).take_while(|&c| c != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// What an out-parameter was set to when the call succeeded.
pub(crate) fn created<T>(pointer: *mut T) -> Result<std::ptr::NonNull<T>> {
    std::ptr::NonNull::new(pointer).ok_or_else(|| Error {
        status: sys::MAINARCH_ERROR_INTERNAL,
        os_errno: 0,
        device: u32::MAX,
        message: "the library gave no handle".into(),
    })
}
