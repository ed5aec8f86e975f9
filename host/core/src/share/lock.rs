//! Locks that stay usable after a panic. No panic leaves what they guard half changed, so that a poisoned lock is as
//! good as any other.

use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Locks a mutex, poisoned or not.
pub trait MutexExt<T: ?Sized> {
    /// Waits for the mutex and locks it.
    fn locked(&self) -> MutexGuard<'_, T>;
}

/// Locks an `RwLock`, poisoned or not.
pub trait RwLockExt<T: ?Sized> {
    /// Waits for writers and locks it for reading.
    fn reading(&self) -> RwLockReadGuard<'_, T>;

    /// Waits for all others and locks it for writing.
    fn writing(&self) -> RwLockWriteGuard<'_, T>;
}

impl<T: ?Sized> MutexExt<T> for Mutex<T> {
    fn locked(&self) -> MutexGuard<'_, T> {
        self.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized> RwLockExt<T> for RwLock<T> {
    fn reading(&self) -> RwLockReadGuard<'_, T> {
        self.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn writing(&self) -> RwLockWriteGuard<'_, T> {
        self.write().unwrap_or_else(PoisonError::into_inner)
    }
}
