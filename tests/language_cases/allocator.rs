use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
struct Mine;
static USED: AtomicBool = AtomicBool::new(false);
unsafe impl GlobalAlloc for Mine {
    unsafe fn alloc(&self, wanted: Layout) -> *mut u8 { USED.store(true, SeqCst); System.alloc(wanted) }
    unsafe fn dealloc(&self, at: *mut u8, had: Layout) { System.dealloc(at, had) }
}
#[global_allocator]
static ALLOCATOR: Mine = Mine;
fn main() { print!("{:?} {}", vec![1, 2], USED.load(SeqCst)); }
