// RocketMQ's own client for Go, measured as measure.py says.
// Usage: measure HOST:PORT TOPIC TASKS RATE_MS SINGLES PER_S LATE_MS CROWD LEAD_MS
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	rocketmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

const (
	bodyBytes = 100
	comes     = 60 * time.Second
)

var (
	producer rocketmq.Producer
	topic    string
	tasks    int
	lock     sync.Mutex
	came     = map[string]time.Time{}
	due      = map[string]time.Time{}
	failed   int
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func tell(fields ...any) {
	text, err := json.Marshal(fields)
	must(err)
	fmt.Println(string(text))
}

func ms(span time.Duration) float64 { return float64(span.Microseconds()) / 1_000 }

func send(token string, at time.Time) bool {
	at = time.UnixMilli(at.UnixMilli() + 1)
	message := &rocketmq.Message{Topic: topic, Body: []byte(fmt.Sprintf("%-*s", bodyBytes, token))}
	message.SetDelayTimestamp(at)
	if _, err := producer.Send(context.Background(), message); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return false
	}
	if time.Now().After(at) {
		return false
	}
	lock.Lock()
	defer lock.Unlock()
	due[token] = at
	return true
}

func sent(token string, at time.Time) {
	if !send(token, at) {
		lock.Lock()
		defer lock.Unlock()
		failed++
	}
}

func allTasks(work func(task int)) {
	var all sync.WaitGroup
	for task := 0; task < tasks; task++ {
		all.Add(1)
		go func() {
			defer all.Done()
			work(task)
		}()
	}
	all.Wait()
}

func rate(span time.Duration) float64 {
	var right, wrong atomic.Int64
	start := time.Now()
	allTasks(func(task int) {
		for time.Since(start) < span {
			if send(fmt.Sprintf("rate-%d", task), time.Now().Add(time.Hour)) {
				right.Add(1)
			} else {
				wrong.Add(1)
			}
		}
	})
	took := time.Since(start)
	tell("rate", right.Load(), wrong.Load(), took.Milliseconds())
	return float64(right.Load()) / took.Seconds()
}

// told waits until all of a kind have come, and tells how late each was.
func told(kind string) {
	last := time.Now()
	for _, at := range due {
		if at.After(last) && at.Before(time.Now().Add(time.Hour/2)) {
			last = at
		}
	}
	for {
		late, missing := []float64{}, 0
		lock.Lock()
		for token, at := range due {
			if !strings.HasPrefix(token, kind) {
				continue
			}
			if when, here := came[token]; here {
				late = append(late, ms(when.Sub(at)))
			} else {
				missing++
			}
		}
		lock.Unlock()
		if missing == 0 || time.Since(last) > comes {
			tell(kind, failed, missing, late)
			failed = 0
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func config(address, group string) *rocketmq.Config {
	return &rocketmq.Config{
		Endpoint: address, ConsumerGroup: group, Credentials: &credentials.SessionCredentials{},
	}
}

func main() {
	address := os.Args[1]
	topic = os.Args[2]
	numbers := []int{}
	for _, text := range os.Args[3:] {
		number, err := strconv.Atoi(text)
		must(err)
		numbers = append(numbers, number)
	}
	tasks = numbers[0]
	singles, perS, crowd := numbers[2], numbers[3], numbers[5]
	lead := time.Duration(numbers[6]) * time.Millisecond
	rocketmq.EnableSsl = false
	var err error
	producer, err = rocketmq.NewProducer(config(address, ""), rocketmq.WithTopics(topic))
	must(err)
	must(producer.Start())
	all := map[string]*rocketmq.FilterExpression{topic: rocketmq.SUB_ALL}
	push, err := rocketmq.NewPushConsumer(config(address, topic),
		rocketmq.WithPushAwaitDuration(5*time.Second),
		rocketmq.WithPushSubscriptionExpressions(all),
		rocketmq.WithPushMessageListener(&rocketmq.FuncMessageListener{
			Consume: func(view *rocketmq.MessageView) rocketmq.ConsumerResult {
				token := strings.Fields(string(view.GetBody()))[0]
				lock.Lock()
				defer lock.Unlock()
				if _, here := came[token]; !here {
					came[token] = time.Now()
				}
				return rocketmq.SUCCESS
			},
		}))
	must(err)
	must(push.Start())
	span := time.Duration(numbers[1]) * time.Millisecond
	rate(span)
	perSecond := rate(span)
	took := []float64{}
	for number := 0; number < singles; number++ {
		start := time.Now()
		if send(fmt.Sprintf("single-%d", number), start.Add(time.Hour)) {
			took = append(took, ms(time.Since(start)))
		}
	}
	tell("single", singles-len(took), took)
	start, count := time.Now(), perS*numbers[4]/1_000
	allTasks(func(task int) {
		for number := task; number < count; number += tasks {
			planned := start.Add(time.Duration(number) * time.Second / time.Duration(perS))
			time.Sleep(time.Until(planned))
			sent(fmt.Sprintf("late-%d", number), planned.Add(lead))
		}
	})
	told("late")
	needed := time.Duration(1.5 * float64(crowd) / max(perSecond, 1) * float64(time.Second))
	instant := time.Now().Add(max(lead, needed))
	allTasks(func(task int) {
		for number := task; number < crowd; number += tasks {
			sent(fmt.Sprintf("crowd-%d", number), instant)
		}
	})
	told("crowd")
	os.Exit(0) // to stop takes as long as a poll
}
