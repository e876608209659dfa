//go:build e2e

package e2e

import (
	"errors"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"caelum/contrib/devcluster/cluster"
)

// look prints the MIG device that a job or a container uses, and the capability files in /dev that it may open. open()
// of a file without a driver fails with ENXIO if the caller has access to the file.
const look = `#!/bin/bash
export PATH=/run/devcluster/build:/usr/bin
echo "visible=$CUDA_VISIBLE_DEVICES"
cuda-process --exclusive --print --seconds 0.2 | cut -d' ' -f1
for file in /dev/nvidia-caps/nvidia-cap*; do
    { exec 3<"$file"; } 2>&1 | grep -q 'No such device' && echo "opens $file"
done
exit 0
`

// inside holds, for each container program, the command that runs look in a container whose root directory is ~/rootfs.
var inside = map[string]string{
	"charliecloud": `ch-run -b /usr -b /run/devcluster/build -b /run/nvml-emulator -b "$HOME:/mnt" rootfs -- \
bash /mnt/look`,
	"crun": `sed "s/MIG-DEVICE/$CUDA_VISIBLE_DEVICES/" bundle.json >config.json
crun --cgroup-manager=disabled --root="$PWD/crun" run "job-$SLURM_JOB_ID"`,
	"slurm": `sed 's/"[^"]*=MIG-DEVICE"//' bundle.json >config.json
srun --container="$PWD" bash /mnt/look`,
	"podman": `XDG_RUNTIME_DIR=$PWD podman --runtime=crun --cgroup-manager=cgroupfs --storage-driver=vfs run --rm \
--pid=host --network=host -v /usr:/usr -v /dev:/dev -v /run/devcluster/build:/run/devcluster/build \
-v /run/nvml-emulator:/run/nvml-emulator -v "$HOME:/mnt" -e CUDA_VISIBLE_DEVICES --rootfs "$HOME/rootfs" \
bash /mnt/look`,
}

// bundle is the config.json of an OCI bundle for a user's container. The container has the host's /usr, /proc and /dev.
const bundle = `{"ociVersion": "1.0.0", "root": {"path": "rootfs"},
"process": {"user": {"uid": 0, "gid": 0}, "args": ["/usr/bin/bash", "/mnt/look"], "cwd": "/",
	"env": ["CUDA_VISIBLE_DEVICES=MIG-DEVICE"]},
"mounts": [
	{"destination": "/usr", "source": "/usr", "type": "none", "options": ["rbind"]},
	{"destination": "/proc", "source": "/proc", "type": "none", "options": ["rbind"]},
	{"destination": "/dev", "source": "/dev", "type": "none", "options": ["rbind"]},
	{"destination": "/run/devcluster/build", "source": "/run/devcluster/build", "type": "none", "options": ["rbind"]},
	{"destination": "/run/nvml-emulator", "source": "/run/nvml-emulator", "type": "none", "options": ["rbind"]},
	{"destination": "/mnt", "source": "HOME", "type": "none", "options": ["rbind"]}],
"linux": {"namespaces": [{"type": "user"}, {"type": "mount"}],
	"uidMappings": [{"containerID": 0, "hostID": UID, "size": 1}],
	"gidMappings": [{"containerID": 0, "hostID": GID, "size": 1}]}}
`

// ociConf lets Slurm start the containers of `srun --container` with crun.
const ociConf = `RunTimeQuery="crun --cgroup-manager=disabled --root=/run/crun state %n.%u.%j.%s.%t"
RunTimeKill="crun --cgroup-manager=disabled --root=/run/crun kill -a %n.%u.%j.%s.%t"
RunTimeDelete="crun --cgroup-manager=disabled --root=/run/crun delete --force %n.%u.%j.%s.%t"
RunTimeRun="crun --cgroup-manager=disabled --root=/run/crun run --bundle %b %n.%u.%j.%s.%t"
`

// TestContainers runs containers in jobs, as an ordinary user. While the same user and another user have slices on the
// node, each container must use its job's slice and must not be able to open the capability files of the others.
func TestContainers(t *testing.T) {
	s := start(t, cluster.Options{Nodes: 1, GPUs: 1, Cgroup: "v2", KeepDeviceFiles: true, Conf: conf[1:2]})
	quietly(t, s)
	s.makeImage(t)
	other := s.submit(t, "exec sleep 600", "--gres=gpu:1", "--mig=1g.5gb")
	foreign := s.must(t, "", stranger, "sbatch", "--parsable", "--output=/dev/null", "--gres=gpu:1", "--mig=1g.5gb",
		"--wrap=exec sleep 600")
	defer s.must(t, "", "root", "scancel", other, foreign)
	for _, id := range []string{other, foreign} {
		s.until(t, id, "the job runs", func(r row) bool { return r.state == "RUNNING" })
	}
	for name, command := range inside {
		t.Run(name, func(t *testing.T) {
			if _, err := exec.LookPath(name); name == "podman" && err != nil {
				t.Skip("podman is not one of the prerequisites, because its packages have 87 MB")
			}
			s.completed(t, s.submit(t, "./look >job 2>&1\n{ "+command+"\n} >container", "--gres=gpu:1", "--mig=1g.5gb"))
			job, container := s.read(t, "job"), s.read(t, "container")
			if name == "slurm" && release(t) == "22.05" && strings.HasPrefix(container, "visible=\n") {
				return // Slurm writes the container's environment before it runs task_init
			}
			if job != container {
				t.Errorf("the job printed\n%sand its container\n%s", job, container)
			}
			uuid, rest, _ := strings.Cut(strings.TrimPrefix(container, "visible="), "\n")
			if !strings.HasPrefix(uuid, "MIG-") || !strings.HasPrefix(rest, "uuid="+uuid+"\n") ||
				strings.Count(rest, "opens ") != 2 {
				t.Errorf("the container uses another device, or opens the files of other slices:\n%s", container)
			}
		})
	}
	files := s.must(t, s.nodes[0], "root", "sh", "-c", "ls /dev/nvidia-caps | wc -l")
	if n, err := strconv.Atoi(files); err != nil || n < 2+3*2 {
		t.Errorf("the node has %s capability files, want those of three slices", files)
	}
}

// makeImage writes the files of the containers into the user's home directory.
func (s *site) makeImage(t *testing.T) {
	t.Helper()
	s.must(t, "", user, "bash", "-euc", `mkdir -p rootfs/{usr,dev,proc,sys,tmp,etc,home,mnt} \
		rootfs/run/{devcluster/build,nvml-emulator}
		touch rootfs/etc/{passwd,group,hosts,resolv.conf}
		for dir in bin lib lib64; do ln -s "usr/$dir" "rootfs/$dir"; done`)
	id := strings.Fields(s.must(t, "", user, "sh", "-c", "id -u; id -g"))
	config := strings.NewReplacer("HOME", s.home(), "UID", id[0], "GID", id[1]).Replace(bundle)
	if err := errors.Join(s.writeHome("look", look), s.writeHome("bundle.json", config)); err != nil {
		t.Fatal(err)
	}
	s.must(t, s.nodes[0], "root", "mkdir", "-m", "1777", "/run/crun")
	s.call(t, "", "root", ociConf, "sh", "-c", "cat >/etc/slurm/oci.conf")
}

// TestNVIDIAVisibleDevices checks nvidia_visible=yes: each task of a step has the slices of the whole step in
// NVIDIA_VISIBLE_DEVICES, and a step without slices does not inherit the list.
func TestNVIDIAVisibleDevices(t *testing.T) {
	s := quietly(t, shared)
	const plugstack = "/etc/slurm/plugstack.conf"
	s.must(t, "", "root", "sed", "-i", "s/spank_caelum.so$/& nvidia_visible=yes/", plugstack)
	defer s.must(t, "", "root", "sed", "-i", "s/ nvidia_visible=yes$//", plugstack)
	const show = `sh -c 'echo "$CUDA_VISIBLE_DEVICES ${NVIDIA_VISIBLE_DEVICES-unset}"'`
	script := show + "\nsrun --gpus-per-task=1 " + show + "\nsrun -n1 --gres=none " + show
	id := s.submit(t, "{ "+script+"\n} >visible", "-n2", "--gpus-per-task=1", "--mig=1g.5gb")
	s.completed(t, id)
	f := strings.Fields(s.read(t, "visible"))
	if len(f) < 7 || f[0] != f[1] || f[3] != f[5] || f[2]+","+f[4] != f[3] && f[4]+","+f[2] != f[3] ||
		f[len(f)-1] != "unset" {
		t.Errorf("the batch script, the two tasks and the step without GPUs have the devices\n%v", f)
	}
}
