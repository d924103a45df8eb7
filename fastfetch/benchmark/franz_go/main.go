// One turn of franz-go, for the benchmarks: like clients.py beside it, it prints one line of JSON.
//
//	franz_go JOB
//
// Records are counted per fetched partition, nothing is done with any of them; with "follow", each is asked for its age.
// CRCs are checked, as by default.
package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type job struct {
	Bootstrap    string     `json:"bootstrap"`
	Topic        string     `json:"topic"`
	Records      int        `json:"records"`
	Partitions   int        `json:"partitions"`
	Starts       [][2]int64 `json:"starts"`
	Follow       string     `json:"follow"`
	QuietSeconds float64    `json:"quiet_seconds"`
}

type turn struct {
	Seconds float64 `json:"seconds"`
	CPU     float64 `json:"cpu"`
	Records int     `json:"records"`
	Peak    int64   `json:"peak_rss_bytes"`
	Ages    []int64 `json:"ages_us"`
}

func main() {
	// Its fastest configuration, by trying: answers of 4 MiB, and a garbage collector that is given four times the memory, which
	// saves a third of the processor time. Pools would want a call for every record.
	debug.SetGCPercent(400)
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	if len(arguments) != 1 {
		return fmt.Errorf("one argument is needed, not %d", len(arguments))
	}
	var job job
	if err := json.Unmarshal([]byte(arguments[0]), &job); err != nil {
		return err
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(job.Bootstrap, ",")...),
		kgo.FetchMaxBytes(64<<20),
		kgo.BrokerMaxReadBytes(128<<20),
		kgo.FetchMaxPartitionBytes(4<<20),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	patience := time.Duration(job.QuietSeconds * float64(time.Second))
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := client.Ping(ctx); err != nil {
		return err
	}
	offsets := make(map[int32]kgo.Offset, job.Partitions)
	for partition := range job.Partitions {
		offsets[int32(partition)] = kgo.NewOffset().AtStart()
	}
	if job.Starts != nil {
		clear(offsets)
		for _, start := range job.Starts {
			offsets[int32(start[0])] = kgo.NewOffset().At(start[1])
		}
	}

	cpu, begun := cpuSeconds(), time.Now()
	client.AddConsumePartitions(map[string]map[int32]kgo.Offset{job.Topic: offsets})
	if job.Follow != "" {
		time.Sleep(time.Second)
		fmt.Println("ready")
		cpu, begun = cpuSeconds(), time.Now()
	}
	read, ages := 0, []int64(nil)
	for read < job.Records {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		fetches := client.PollFetches(ctx)
		cancel()
		if errors := fetches.Errors(); len(errors) > 0 {
			return fmt.Errorf("%d of %d records of %s were read: %w", read, job.Records, job.Topic, errors[0].Err)
		}
		if job.Follow != "" {
			now := time.Now().UnixNano()
			fetches.EachRecord(func(record *kgo.Record) {
				born := record.Timestamp.UnixNano()
				if job.Follow == "value" {
					born = int64(binary.BigEndian.Uint64(record.Value))
				}
				ages = append(ages, (now-born)/1000)
			})
		}
		fetches.EachPartition(func(partition kgo.FetchTopicPartition) { read += len(partition.Records) })
	}
	return json.NewEncoder(os.Stdout).Encode(turn{time.Since(begun).Seconds(), cpuSeconds() - cpu, read, peak(), ages})
}

func usage() syscall.Rusage {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return usage
}

func cpuSeconds() float64 {
	usage := usage()
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds()
}

// The most resident memory. Not ru_maxrss where there is something else: after fork and exec it begins with the parent's.
func peak() int64 {
	file, err := os.Open("/proc/self/status")
	if err != nil {
		return int64(usage().Maxrss)
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if words := strings.Fields(lines.Text()); len(words) == 3 && words[0] == "VmHWM:" {
			kilobytes, _ := strconv.ParseInt(words[1], 10, 64)
			return kilobytes << 10
		}
	}
	return 0
}
