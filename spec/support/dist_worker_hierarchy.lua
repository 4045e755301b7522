--- dist_worker_hierarchy: a rank for hierarchy_spec: groups of some ranks of several hosts, and a rank that does not come.
-- Arguments: what to do, and on which host each rank is ("1122").
local core = require "argand.core"
local ag = require "argand"
local dist = require "argand.dist"

local what, hosts = arg[1], arg[2]
local rank, size = tonumber(os.getenv "ARGAND_RANK"), tonumber(os.getenv "ARGAND_WORLD_SIZE")

local function emit(name, fields)
  local parts = {"@" .. name, ("at=%.6f"):format(core.now())}
  for key, value in pairs(fields or {}) do parts[#parts + 1] = key .. "=" .. tostring(value):gsub("[\t\n]", " ") end
  io.stdout:write(table.concat(parts, "\t"), "\n")
  io.stdout:flush()
end

local function host_of(of) return hosts:sub(of + 1, of + 1) end

local function expected_transport(members)
  local counts, num_hosts, is_shared = {}, 0, false
  for _, of in ipairs(members) do
    local host = host_of(of)
    counts[host] = (counts[host] or 0) + 1
    if counts[host] == 1 then num_hosts = num_hosts + 1 else is_shared = true end
  end
  if num_hosts == 1 then return "shm" end
  return is_shared and "shm+tcp" or "tcp"
end

local num_right, wrong = 0, nil

local function expect(name, got, wanted)
  if got == wanted then num_right = num_right + 1 else wrong = wrong or ("%s: %s, expected %s"):format(name, got, wanted) end
end

local function is_same(a, b) return a:eq(b):all():item() end

local function value_of(of) return ag.arange(1000) + of * 3 end

local function check_group(group, members, name)
  local total, largest = ag.zeros {1000}, value_of(members[#members])
  for _, of in ipairs(members) do total = total + value_of(of) end
  expect(name .. " transport", group.member:describe().transport, expected_transport(members))
  expect(name .. " sum", is_same(group:all_reduce(value_of(rank)), total), true)
  expect(name .. " max", is_same(group:all_reduce(value_of(rank), {op = "max"}), largest), true)
  local work = group:all_reduce(value_of(rank), {async = true})
  for place, of in ipairs(members) do
    expect(name .. " broadcast", is_same(group:broadcast(value_of(rank), {root = place - 1}), value_of(of)), true)
    local result = group:reduce(value_of(rank), {root = place - 1})
    expect(name .. " reduce", of == rank and is_same(result, total) or result == nil, true)
  end
  expect(name .. " async sum", is_same(work:wait(), total), true)
  expect(name .. " all_gather", group:all_gather(ag.ones {2}):numel(), 2 * #members)
  group:barrier()
end

local function subsets()
  local list = {}
  for bits = 1, 2 ^ size - 1 do
    local members = {}
    for of = 0, size - 1 do
      if math.floor(bits / 2 ^ of) % 2 == 1 then members[#members + 1] = of end
    end
    if #members > 1 then list[#list + 1] = members end
  end
  return list
end

local actions = {}

function actions.groups()
  for _, members in ipairs(subsets()) do
    local group = dist.group(members)
    if group then check_group(group, members, table.concat(members, ",")) end
  end
end

-- Gradients in blocks, which are private memory here.
function actions.train()
  local param = ag.full({300, 7}, rank, {requires_grad = true})
  local job = dist.register {param}
  expect("parameters of rank 0", param:eq(0):all():item(), true)
  for _ = 1, 3 do
    param.grad = nil
    (param * (rank + 1)):sum():backward()
    job:sync()
    expect("mean gradient", param.grad:eq((size + 1) / 2):all():item(), true)
  end
  job:close()
end

-- Parameters that the ranks of a host have in common: each is updated once a host.
function actions.train_in_common()
  local params = {}
  for i = 1, 4 do params[i] = ag.full({300, 7}, rank, {requires_grad = true}) end
  local job = dist.register(params, {shard = "host"})
  local optimizer = ag.optim.SGD(params, {lr = 1})
  for step = 1, 3 do
    local loss = 0
    for _, param in ipairs(params) do loss = (param * (rank + 1)):sum() + loss end
    loss:backward()
    job:step(optimizer)
    optimizer:zero_grad()
    for _, param in ipairs(params) do
      expect("updated once", param:eq(-step * (size + 1) / 2):all():item(), true)
    end
  end
  local owners = {}
  for i, param in ipairs(params) do owners[i] = dist.registered(param).owner end
  emit("owners", {owners = table.concat(owners, ",")})
  job:close()
end

function actions.absent_rank()
  dist.barrier()
  if rank == tonumber(arg[3]) then return core.sleep(3) end
  local is_ok, err = pcall(dist.all_reduce, ag.ones {10}, {timeout = 1})
  if is_ok then return expect("outcome", "a result", "an error") end
  emit("error", {code = err.code, message = tostring(err), culprits = table.concat(err.culprits or {}, ",")})
end

local is_ok, err = pcall(function()
  dist.init {timeout = 20}
  emit("ready", {transport = dist.info().transport})
  actions[what]()
end)
if not is_ok then wrong = tostring(err) end
emit("done", {num_right = num_right, wrong = wrong or ""})
dist.close(5)
os.exit(0, true)
