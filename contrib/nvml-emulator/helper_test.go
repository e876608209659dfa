package nvmlemulator_test

import (
	"fmt"
	"math/rand/v2"
	"os"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// If a test has started the test binary as a second process, helper runs instead of the tests. The second process's
// argument is the path of the library. helper returns the exit status.
func helper(mode string) int {
	lib := nvml.New(nvml.WithLibraryPath(os.Args[1]))
	if ret := lib.Init(); ret != nvml.SUCCESS {
		fmt.Println("Init:", ret)
		return 1
	}
	defer lib.Shutdown()
	d, ret := lib.DeviceGetHandleByIndex(0)
	if ret != nvml.SUCCESS {
		fmt.Println("DeviceGetHandleByIndex:", ret)
		return 1
	}
	switch mode {
	case "race":
		return race(d)
	case "create":
		info, _ := d.GetGpuInstanceProfileInfo(nvml.GPU_INSTANCE_PROFILE_1_SLICE)
		_, ret := d.CreateGpuInstanceWithPlacement(&info, &nvml.GpuInstancePlacement{Start: 0, Size: 1})
		fmt.Println(ret)
		return 0
	case "mig-on", "mig-off":
		enable := map[string]int{"mig-on": nvml.DEVICE_MIG_ENABLE, "mig-off": nvml.DEVICE_MIG_DISABLE}
		status, ret := d.SetMigMode(enable[mode])
		fmt.Printf("%v, %v\n", ret, status)
		return 0
	}
	return 2
}

// race creates and destroys instances at random placements. It reads the GPU's state only through the library.
func race(d nvml.Device) int {
	type slice struct {
		gi nvml.GpuInstance
		ci nvml.ComputeInstance
	}
	var mine []slice
	enums := []int{
		nvml.GPU_INSTANCE_PROFILE_1_SLICE,
		nvml.GPU_INSTANCE_PROFILE_2_SLICE,
		nvml.GPU_INSTANCE_PROFILE_3_SLICE,
	}
	for range 150 {
		if len(mine) > 0 && rand.IntN(3) == 0 {
			i := rand.IntN(len(mine))
			if ret := mine[i].ci.Destroy(); ret != nvml.SUCCESS {
				fmt.Println("destroy compute instance:", ret)
				return 1
			}
			if ret := mine[i].gi.Destroy(); ret != nvml.SUCCESS {
				fmt.Println("destroy GPU instance:", ret)
				return 1
			}
			mine = append(mine[:i], mine[i+1:]...)
			continue
		}
		info, _ := d.GetGpuInstanceProfileInfo(enums[rand.IntN(len(enums))])
		places, _ := d.GetGpuInstancePossiblePlacements(&info)
		gi, ret := d.CreateGpuInstanceWithPlacement(&info, &places[rand.IntN(len(places))])
		if ret == nvml.ERROR_INSUFFICIENT_RESOURCES {
			continue
		}
		if ret != nvml.SUCCESS {
			fmt.Println("create GPU instance:", ret)
			return 1
		}
		profile, _ := gi.GetComputeInstanceProfileInfo(
			int(info.SliceCount)-1,
			nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED,
		)
		ci, ret := gi.CreateComputeInstance(&profile)
		if ret != nvml.SUCCESS {
			fmt.Println("create compute instance:", ret)
			return 1
		}
		mine = append(mine, slice{gi, ci})
	}
	return 0
}
