/* Waits with a limit, of one thread and of several; each line is how one of them ended, and after how many microseconds */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER, monotonic;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static sem_t semaphore;
static cnd_t cnd;
static mtx_t mtx;
static long began;
static bool done;

static long now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000 + (t.tv_nsec + 5000) / 10000 * 10; /* threads that read it at a time make it a little later */
}

static struct timespec in_us(clockid_t clock, long us)
{
	struct timespec t;

	clock_gettime(clock, &t);
	us += t.tv_sec * 1000000 + t.tv_nsec / 1000;
	return (struct timespec){us / 1000000, us % 1000000 * 1000};
}

static const char *name(int wrong)
{
	return !wrong ? "0" : wrong == ETIMEDOUT ? "ETIMEDOUT" : wrong == EINVAL ? "EINVAL" : strerror(wrong);
}

static void say(const char *what, int wrong)
{
	printf("%s %s after %ld\n", what, name(wrong), now_us() - began);
	began = now_us();
}

static int of_c(int result)
{
	return result == thrd_success ? 0 : result == thrd_timedout ? ETIMEDOUT : EINVAL;
}

/* Nobody comes */
static void alone(void)
{
	struct timespec t = in_us(CLOCK_REALTIME, 7000), past = in_us(CLOCK_REALTIME, -7000), bad = {0, 1000000000};

	began = now_us();
	pthread_mutex_lock(&mutex);
	say("condition", pthread_cond_timedwait(&condition, &mutex, &t));
	say("condition, past", pthread_cond_timedwait(&condition, &mutex, &past));
	say("condition, no time", pthread_cond_timedwait(&condition, &mutex, &bad));
	t = in_us(CLOCK_MONOTONIC, 6000);
	say("condition, monotonic", pthread_cond_timedwait(&monotonic, &mutex, &t));
	t = in_us(CLOCK_MONOTONIC, 5000);
	say("condition, clock", pthread_cond_clockwait(&condition, &mutex, CLOCK_MONOTONIC, &t));
	t = in_us(CLOCK_REALTIME, 4000);
	say("mutex", pthread_mutex_timedlock(&mutex, &t));
	pthread_mutex_unlock(&mutex);
	t = in_us(CLOCK_REALTIME, 3000);
	say("semaphore", sem_timedwait(&semaphore, &t) ? errno : 0);
	sem_post(&semaphore);
	say("semaphore, past", sem_timedwait(&semaphore, &past) ? errno : 0);
	pthread_rwlock_rdlock(&rwlock);
	t = in_us(CLOCK_MONOTONIC, 2000);
	say("writer", pthread_rwlock_clockwrlock(&rwlock, CLOCK_MONOTONIC, &t));
	pthread_rwlock_unlock(&rwlock);
	mtx_lock(&mtx);
	t = in_us(CLOCK_REALTIME, 1000);
	say("cnd", of_c(cnd_timedwait(&cnd, &mtx, &t)));
	t = in_us(CLOCK_REALTIME, 1000);
	say("mtx", of_c(mtx_timedlock(&mtx, &t)));
	mtx_unlock(&mtx);
}

/* What another does @us later */
static void *later(void *us)
{
	usleep((useconds_t)(long)us);
	pthread_mutex_lock(&mutex);
	done = true;
	pthread_cond_broadcast(&condition);
	pthread_mutex_unlock(&mutex);
	sem_post(&semaphore);
	return NULL;
}

static void *holds(void *us)
{
	pthread_mutex_lock(&mutex);
	pthread_rwlock_wrlock(&rwlock);
	sem_post(&semaphore);
	usleep((useconds_t)(long)us);
	pthread_rwlock_unlock(&rwlock);
	pthread_mutex_unlock(&mutex);
	return NULL;
}

static void with_another(const char *what, long us, long limit)
{
	pthread_t other;
	int wrong = 0;

	done = false;
	began = now_us();
	struct timespec t = in_us(CLOCK_REALTIME, limit);
	pthread_mutex_lock(&mutex);
	pthread_create(&other, NULL, later, (void *)us);
	while (!done && !wrong)
		wrong = pthread_cond_timedwait(&condition, &mutex, &t);
	pthread_mutex_unlock(&mutex);
	say(what, wrong);
	sem_wait(&semaphore);
	say("its end", pthread_join(other, NULL));
}

static void of_locks(void)
{
	struct timespec t;
	pthread_t other;

	pthread_create(&other, NULL, holds, (void *)9000L);
	sem_wait(&semaphore);
	began = now_us();
	t = in_us(CLOCK_REALTIME, 2000);
	say("mutex of another", pthread_mutex_timedlock(&mutex, &t));
	t = in_us(CLOCK_REALTIME, 3000);
	say("reader", pthread_rwlock_timedrdlock(&rwlock, &t));
	t = in_us(CLOCK_REALTIME, 1000);
	say("thread", pthread_timedjoin_np(other, NULL, &t));
	t = in_us(CLOCK_REALTIME, 30000);
	say("mutex of another", pthread_mutex_timedlock(&mutex, &t));
	pthread_mutex_unlock(&mutex);
	t = in_us(CLOCK_MONOTONIC, 30000);
	say("thread", pthread_clockjoin_np(other, NULL, CLOCK_MONOTONIC, &t));
}

/* Two that sleep, each at its own pace: a line for each time that one wakes */
static void *sleeper(void *us)
{
	for (int i = 0; i < 3; i++) {
		usleep((useconds_t)(long)us);
		printf("%ld wakes at %ld\n", (long)us, now_us() - began);
	}
	return NULL;
}

int main(void)
{
	pthread_condattr_t a;
	pthread_t others[2];

	pthread_condattr_init(&a);
	pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
	pthread_cond_init(&monotonic, &a);
	sem_init(&semaphore, 0, 0);
	mtx_init(&mtx, mtx_timed);
	cnd_init(&cnd);
	alone();
	with_another("signalled", 3000, 50000);
	with_another("too late", 20000, 5000);
	of_locks();
	began = now_us();
	pthread_create(&others[0], NULL, sleeper, (void *)3000L);
	pthread_create(&others[1], NULL, sleeper, (void *)5000L);
	pthread_join(others[0], NULL);
	pthread_join(others[1], NULL);
	alone();
	return 0;
}
