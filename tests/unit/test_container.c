// SPDX-License-Identifier: GPL-2.0
// links: userspace/terms/container.c
/*
 * Paths as kubelet, containerd, CRI-O, Docker, Podman and nerdctl make them, and such as somebody
 * makes who wants to be taken for another.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "unit.h"
#include "terms/container.h"

#define ID        "6d1f0a2c9b8e7f5d4c3b2a19080716253443526170899aabbccddeeff0011223"
#define INNER     "0000000000000000000000000000000000000000000000000000000000000abc"
#define UID       "3f2a91c4-6b0e-4d7a-9c35-d1e8f0a2b467"
#define OTHER_UID "00000000-6b0e-4d7a-9c35-d1e8f0a2b467"
#define UID_      "3f2a91c4_6b0e_4d7a_9c35_d1e8f0a2b467"
#define HASH      "b9e25e8bd1b6a1c0d7f6a4c3e2f10987"
#define OTHER     "00000000-0000-0000-0000-000000000001"
#define OTHER_    "00000000_0000_0000_0000_000000000001"

struct place {
	const char *path, *id, *uid;
};

static void assert_places(const struct place *places)
{
	for (const struct place *p = places; p->path; p++) {
		struct nt_container found, padded;

		nt_container_of_path(p->path, &found);
		if (strcmp(found.id, p->id) || strcmp(found.pod_uid, p->uid))
			fail_msg("%s: container '%s', pod '%s'", p->path, found.id, found.pod_uid);
		strncpy(padded.id, p->id, sizeof(padded.id));
		strncpy(padded.pod_uid, p->uid, sizeof(padded.pod_uid));
		assert_memory_equal(&found, &padded, sizeof(found));
	}
}

TEST(runtimes_name_their_containers)
{
	static const struct place places[] = {
		/* containerd below kubelet, both drivers; each quality of service */
		{"/kubepods/burstable/pod" UID "/" ID, ID, UID},
		{"/kubepods/besteffort/pod" UID "/" ID, ID, UID},
		{"/kubepods/pod" UID "/" ID, ID, UID},
		{"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" UID_
		 ".slice/cri-containerd-" ID ".scope",
		 ID, UID},
		{"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" UID_
		 ".slice/cri-containerd-" ID ".scope",
		 ID, UID},
		{"/kubepods.slice/kubepods-pod" UID_ ".slice/cri-containerd-" ID ".scope", ID, UID},
		/* pods from files */
		{"/kubepods/burstable/pod" HASH "/" ID, ID, HASH},
		{"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" HASH
		 ".slice/cri-containerd-" ID ".scope",
		 ID, HASH},
		/* kubelet's pods below a directory of its own, as in kind, whose node is a
		   container */
		{"/kubelet/kubepods/burstable/pod" UID "/" ID, ID, UID},
		{"/docker/" INNER
		 "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/"
		 "kubelet-kubepods-burstable-pod" UID_ ".slice/cri-containerd-" ID ".scope",
		 ID, UID},
		/* kubelet with systemd's driver, containerd with the other */
		{"/system.slice/containerd.service/kubepods-burstable-pod" UID_
		 ".slice:cri-containerd:" ID,
		 ID, UID},
		{"/kubepods-besteffort-pod" HASH ".slice:cri-containerd:" ID, ID, HASH},
		{"/docker/" INNER "/kubepods/pod" UID, "", UID},
		/* CRI-O; crun makes a cgroup for the container below its scope */
		{"/kubepods/burstable/pod" UID "/crio-" ID, ID, UID},
		{"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" UID_
		 ".slice/crio-" ID ".scope",
		 ID, UID},
		{"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" UID_
		 ".slice/crio-" ID ".scope/container",
		 ID, UID},
		{"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" UID_
		 ".slice/crio-conmon-" ID ".scope",
		 "", UID},
		/* Docker, alone and below kubelet */
		{"/docker/" ID, ID, ""},
		{"/docker/" ID "/init.scope", ID, ""},
		{"/system.slice/docker-" ID ".scope", ID, ""},
		{"/my-parent/" ID, ID, ""},
		{"/kubepods.slice/kubepods-pod" UID_ ".slice/docker-" ID ".scope", ID, UID},
		{"/kubepods/burstable/pod" UID "/" ID, ID, UID},
		/* Podman: root's, a user's, in a pod of its own (which is none of Kubernetes),
		   conmon */
		{"/machine.slice/libpod-" ID ".scope", ID, ""},
		{"/machine.slice/libpod-" ID ".scope/container", ID, ""},
		{"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" ID
		 ".scope/container",
		 ID, ""},
		{"/machine.slice/machine-libpod_pod_" INNER ".slice/libpod-" ID ".scope", ID, ""},
		{"/system.slice/web.service/libpod-payload-" ID, ID, ""},
		{"/libpod_parent/libpod-" ID, ID, ""},
		{"/machine.slice/libpod-conmon-" ID ".scope", "", ""},
		/* nerdctl, and one of Amazon's tasks */
		{"/system.slice/nerdctl-" ID ".scope", ID, ""},
		{"/default/" ID, ID, ""},
		{"/ecs/" HASH "/" ID, ID, ""},
		/* a process in the pod's own cgroup; one that has ended */
		{"/kubepods/burstable/pod" UID, "", UID},
		{"/kubepods/burstable/pod" UID "/" ID " (deleted)", ID, UID},
		{NULL, NULL, NULL},
	};

	assert_places(places);
}

TEST(other_cgroups_name_none)
{
	static const struct place places[] = {
		{"", "", ""},
		{"/", "", ""},
		{"//", "", ""},
		{"/init.scope", "", ""},
		{"/system.slice/ssh.service", "", ""},
		{"/system.slice/docker.service", "", ""},
		{"/kubepods.slice/kubepods-burstable.slice", "", ""},
		{"/kubepods/burstable", "", ""},
		{"/user.slice/user-1000.slice/session-2.scope", "", ""},
		{"/machine.slice/systemd-nspawn@x.service/payload", "", ""},
		{"/lxc.payload.web", "", ""},
		{NULL, NULL, NULL},
	};

	assert_places(places);
}

TEST(what_is_inside_a_container_does_not_speak_for_it)
{
	static const struct place places[] = {
		/* a container that runs Docker, or a kubelet, or pretends to */
		{"/kubepods/burstable/pod" UID "/" ID "/docker/" INNER, ID, UID},
		{"/kubepods/burstable/pod" UID "/" ID "/kubepods/burstable/pod" OTHER "/" INNER, ID,
		 UID},
		{"/kubepods.slice/kubepods-pod" UID_ ".slice/cri-containerd-" ID
		 ".scope/kubepods.slice/kubepods-pod" OTHER_ ".slice/cri-containerd-" INNER
		 ".scope",
		 ID, UID},
		{"/docker/" ID "/docker/" INNER, ID, ""},
		{"/docker/" ID "/libpod-" INNER ".scope", ID, ""},
		{NULL, NULL, NULL},
	};

	assert_places(places);
}

TEST(names_that_are_almost_right_are_none)
{
	static const struct place places[] = {
		/* digits: too few, too many, capital, others */
		{"/docker/6d1f0a2c", "", ""},
		{"/docker/" ID "0", "", ""},
		{"/docker/6D1F0A2C9B8E7F5D4C3B2A19080716253443526170899AABBCCDDEEFF0011223", "",
		 ""},
		{"/docker/gd1f0a2c9b8e7f5d4c3b2a19080716253443526170899aabbccddeeff0011223", "",
		 ""},
		{"/docker/\033[2J0a2c9b8e7f5d4c3b2a19080716253443526170899aabbccddeeff0011223", "",
		 ""},
		{"/system.slice/sshd-" ID ".scope", "", ""},
		{"/system.slice/xdocker-" ID ".scope", "", ""},
		{"/system.slice/docker-docker-" ID ".scope", "", ""},
		{"/docker/" ID ".scope.scope", "", ""},
		/* UIDs */
		{"/kubepods/burstable/pod", "", ""},
		{"/kubepods/burstable/pod3f2a91c4", "", ""},
		{"/kubepods/burstable/pod" UID_, "", ""},
		{"/kubepods/burstable/pod" UID "0", "", ""},
		{"/kubepods/burstable/pod3F2A91C4-6b0e-4d7a-9c35-d1e8f0a2b467", "", ""},
		{"/kubepods/burstable/pod" HASH "0", "", ""},
		{"/kubepods/burstable/podcast", "", ""},
		{"/kubepods.slice/kubepods-pod" UID ".slice", "", ""},
		{"/kubepods.slice/kubepods-pod" UID_, "", ""},
		{"/kubepods.slice/kubepods-pod.slice", "", ""},
		{"/pod.slice", "", ""},
		{".slice", "", ""},
		/* other parents than kubelet's */
		{"/user.slice/pod" UID "/x", "", ""},
		{"/notkubepods/pod" UID, "", ""},
		{"/x.slice/x-pod" UID_ ".slice", "", ""},
		{"/x.slice/xkubepods-pod" UID_ ".slice", "", ""},
		/* joined names */
		{":", "", ""},
		{"::", "", ""},
		{"/kubepods-pod" UID_ ".slice:", "", UID},
		{"/:cri-containerd:" ID, ID, ""},
		{NULL, NULL, NULL},
	};

	assert_places(places);
}

struct file {
	const char *text, *path, *id, *uid;
};

static void assert_files(const struct file *files, const char *root)
{
	for (const struct file *f = files; f->text; f++) {
		struct nt_container found;
		char path[256];

		nt_cgroups_parse(f->text, root, path, sizeof(path), &found);
		if (strcmp(path, f->path) || strcmp(found.id, f->id) ||
		    strcmp(found.pod_uid, f->uid))
			fail_msg("%s: '%s', container '%s', pod '%s'", f->text, path, found.id,
				 found.pod_uid);
	}
}

TEST(the_file_of_a_process_is_read_whatever_the_host_mounts)
{
	static const struct file files[] = {
		{"0::/system.slice/ssh.service\n", "/system.slice/ssh.service", "", ""},
		{"0::/\n", "/", "", ""},
		{"", "", "", ""},
		/* cgroup v1 alone, as Docker and kubelet used it */
		{"12:cpuset:/kubepods/burstable/pod" UID "/" ID "\n"
		 "11:cpu,cpuacct:/kubepods/burstable/pod" UID "/" ID "\n"
		 "1:name=systemd:/kubepods/burstable/pod" UID "/" ID "\n",
		 "", ID, UID},
		{"3:memory:/docker/" ID "\n1:name=systemd:/docker/" ID "\n0::/\n", "/", ID, ""},
		/* both: v2 counts, wherever its line is */
		{"4:memory:/docker/" INNER "\n0::/kubepods/pod" UID "/" ID "\n",
		 "/kubepods/pod" UID "/" ID, ID, UID},
		{"0::/kubepods/pod" UID "/" ID "\n4:memory:/docker/" INNER "\n",
		 "/kubepods/pod" UID "/" ID, ID, UID},
		/* a controller's path that pretends to be a line of v2 is none: it is the third
		   part */
		{"5:name=0:::/docker/" ID "\n", "", "", ""},
		{"no line\n::\n7:cpu\n0:\n0::\n0::relative\n", "", "", ""},
		{NULL, NULL, NULL, NULL},
	};

	assert_files(files, NULL);
}

/* What a tracer reads whose own cgroup namespace begins elsewhere. */
TEST(the_climb_to_the_readers_root_is_left_out)
{
	static const struct file files[] = {
		{"0::/../../../kubepods/burstable/pod" UID "/" ID "\n",
		 "/kubepods/burstable/pod" UID "/" ID, ID, UID},
		{"0::/../../../burstable/pod" UID "/" ID "\n", "/burstable/pod" UID "/" ID, ID,
		 UID},
		{"0::/../../pod" UID "/" ID "\n", "/pod" UID "/" ID, ID, UID},
		{"0::/../" ID "\n", "/" ID, ID, ""},
		{"0::/../kubepods-burstable-pod" UID_ ".slice/cri-containerd-" ID ".scope\n",
		 "/kubepods-burstable-pod" UID_ ".slice/cri-containerd-" ID ".scope", ID, UID},
		{"0::/../..\n", "/", "", ""},
		{"0::/..\n", "/", "", ""},
		/* names that users chose */
		{"0::/..x/y\n", "/..x/y", "", ""},
		{"0::/../...\n", "/...", "", ""},
		{"0::/a/../b\n", "/a/../b", "", ""},
		{NULL, NULL, NULL, NULL},
	};

	assert_files(files, NULL);
}

TEST(a_path_begins_at_the_hosts_root_where_the_readers_is_known)
{
#define OWN "/kubepods/burstable/pod" UID "/" INNER
	static const struct file files[] = {
		{"0::/../../pod" OTHER_UID "/" ID "\n", "/kubepods/burstable/pod" OTHER_UID "/" ID,
		 ID, OTHER_UID},
		{"0::/../" ID "\n", "/kubepods/burstable/pod" UID "/" ID, ID, UID},
		{"0::/\n", OWN, INNER, UID},
		{"0::/..\n", "/kubepods/burstable/pod" UID, "", UID},
		{"0::/below\n", OWN "/below", INNER, UID},
		{"0::/../../../../system.slice/ssh.service\n", "/system.slice/ssh.service", "", ""},
		{"0::/../../../..\n", "/", "", ""},
		{"0::/../../../../../../x\n", "/x", "", ""},
		/* of cgroup v1 nobody knows the root */
		{"4:memory:/../" ID "\n", "", ID, ""},
		{NULL, NULL, NULL, NULL},
	};
	static const struct file of_the_host[] = {
		{"0::/docker/" ID "\n", "/docker/" ID, ID, ""},
		{"0::/\n", "/", "", ""},
		{NULL, NULL, NULL, NULL},
	};

	assert_files(files, OWN);
	assert_files(of_the_host, "");
}

/* The container is found all the same in a path that is cut for the record. */
TEST(a_path_without_end_is_cut)
{
	char text[4096] = "0::/", path[256];
	struct nt_container found;

	memset(text + 4, 'x', 2000);
	strcat(text, "/docker/" ID "\n");
	nt_cgroups_parse(text, NULL, path, sizeof(path), &found);
	assert_int_equal(strlen(path), 255);
	assert_string_equal(found.id, ID);
}

UNIT_MAIN()
