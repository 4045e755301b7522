--- ddp_rank: one rank of a data-parallel training for `argand bench ddp`; a server on standard input.
--
-- First it prints "ready" and the number of parameters. A line with a number asks for that many steps. The answer is "ok",
-- start and end in seconds of the monotonic clock, seconds of communication that were hidden behind backward, and that were
-- not, and the process's memory in MiB.
-- Arguments: samples in this rank's batch; what `shard` is, or nothing.
local ag = require "argand"
local core = require "argand.core"
local dist = require "argand.dist"
local nn, optim = ag.nn, ag.optim

local NUM_FEATURES, NUM_HIDDEN, NUM_CLASSES = 1024, 2304, 1024

local batch = tonumber(arg[1])
dist.init()
ag.manual_seed(1)
local model = nn.Sequential(
  nn.Linear(NUM_FEATURES, NUM_HIDDEN, { activation = "relu" }),
  nn.Linear(NUM_HIDDEN, NUM_HIDDEN, { activation = "relu" }),
  nn.Linear(NUM_HIDDEN, NUM_CLASSES))
local job = dist.register(model, { shard = arg[2] })
local optimizer = optim.AdamW(model:parameters(), { lr = 1e-4 })
ag.manual_seed(2 + dist.rank())
local x, labels = ag.randn(batch, NUM_FEATURES), ag.randint(1, NUM_CLASSES + 1, { batch })

local function step()
  local loss = model(x):cross_entropy(labels)
  loss:backward()
  job:step(optimizer)
  optimizer:zero_grad()
  return loss
end

-- Ranks that trained different things must not pass for fast.
local function check_replicas(loss)
  local sum = 0
  for _, parameter in ipairs(model:parameters()) do sum = sum + parameter:detach():sum():item() end
  local low, high = dist.all_reduce(sum, { op = "min" }), dist.all_reduce(sum, { op = "max" })
  local value = loss:item()
  if low ~= high or value ~= value then error(("ranks differ: %g and %g, loss %g"):format(low, high, value)) end
end

local function run(num_steps)
  local before, loss = job:stats(), nil
  dist.barrier()
  local start = core.now()
  for _ = 1, num_steps do loss = step() end
  local stop, after = core.now(), job:stats()
  check_replicas(loss)
  return start, stop, after.hidden_s - before.hidden_s, after.exposed_s - before.exposed_s
end

local function memory_mib()
  local file = io.open "/proc/self/smaps_rollup"
  if not file then return 0 end
  local text = file:read "*a"
  file:close()
  return tonumber(text:match "Pss:%s*(%d+)") / 1024
end

local count = 0
for _, parameter in ipairs(model:parameters()) do count = count + parameter:numel() end
io.stdout:setvbuf "line"
print("ready " .. count)
for line in io.stdin:lines() do
  local start, stop, hidden, exposed = run(tonumber(line))
  print(("ok %.9f %.9f %.9f %.9f %.1f"):format(start, stop, hidden, exposed, memory_mib()))
end
job:close()
dist.close()
