//! Which loop copies: the string move, or vectors of 16, 32 or 64 bytes. Chosen once per process, by what the processor has, by
//! calibration, or by hand (`PULC_COPY_KERNEL`; tools that know no AVX-512 need that). Used by `copy` only.

use pulc_base::param::Param;
use std::sync::atomic::{AtomicU8, Ordering};

pub static COPY_KERNEL: Param = Param {
    name: "copy_kernel",
    default: 0,
    min: 0,
    max: 3,
    text: "how shared memory is copied: 0 chooses by processor, 1 string move, 2 AVX2, 3 AVX-512; one that is missing counts as 0",
};

/// A copying loop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kernel {
    StringMove = 1,
    Avx2 = 2,
    Avx512 = 3,
}

/// 0: not chosen yet.
static CHOSEN: AtomicU8 = AtomicU8::new(0);

impl Kernel {
    pub const ALL: [Kernel; 3] = [Kernel::StringMove, Kernel::Avx2, Kernel::Avx512];

    /// Whether this processor has it.
    pub fn is_here(self) -> bool {
        match self {
            Kernel::StringMove => true,
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx2 => std::arch::is_x86_feature_detected!("avx2"),
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx512 => std::arch::is_x86_feature_detected!("avx512f") && Kernel::Avx2.is_here(),
            #[cfg(not(target_arch = "x86_64"))]
            _ => false,
        }
    }

    /// The kernel that a value of the parameter stands for.
    fn of_value(value: u64) -> Option<Kernel> {
        Kernel::ALL.into_iter().find(|kernel| *kernel as u64 == value && kernel.is_here())
    }

    /// Without anybody's word: AVX2. Wider vectors are a little faster on some machines and slow others down, so they are
    /// taken when calibration has found them faster.
    fn by_processor() -> Kernel {
        if Kernel::Avx2.is_here() { Kernel::Avx2 } else { Kernel::StringMove }
    }

    /// From now on this one copies.
    pub fn choose(self) {
        CHOSEN.store(self as u8, Ordering::Relaxed);
    }

    /// The one that copies.
    #[inline(always)]
    pub fn chosen() -> Kernel {
        match CHOSEN.load(Ordering::Relaxed) {
            2 => Kernel::Avx2,
            3 => Kernel::Avx512,
            1 => Kernel::StringMove,
            _ => Kernel::first_choice(),
        }
    }

    #[cold]
    fn first_choice() -> Kernel {
        let kernel = Kernel::of_value(COPY_KERNEL.read().value).unwrap_or_else(Kernel::by_processor);
        kernel.choose();
        kernel
    }
}
