--- dist_worker_soak: a rank for soak.lua: collectives without end, checked; after a failure it goes on with those that live.
local core = require "argand.core"
local ag = require "argand"
local dist = require "argand.dist"

local function emit(name, fields)
  local parts = {"@" .. name, ("at=%.6f"):format(core.now())}
  for key, value in pairs(fields or {}) do parts[#parts + 1] = key .. "=" .. tostring(value):gsub("[\t\n]", " ") end
  io.stdout:write(table.concat(parts, "\t"), "\n")
  io.stdout:flush()
end

local function count_files()
  local count = 0
  for fd = 0, 1023 do
    local file = io.open("/proc/self/fdinfo/" .. fd)
    if file then
      file:close()
      count = count + 1
    end
  end
  return count
end

-- Own memory, and what is mapped from shared memory.
local function resident_mib()
  local file = io.open "/proc/self/status"
  local text = file:read "*a"
  file:close()
  return tonumber(text:match "RssAnon:%s*(%d+)") / 1024, tonumber(text:match "RssShmem:%s*(%d+)") / 1024
end

-- One step: right for whatever size the world has, or an error.
local function step(number)
  local rank, size = dist.rank(), dist.size()
  local count = number % 7 == 0 and 300000 or 1000
  local sum = dist.all_reduce(ag.full({count}, rank + 1))
  local expected = size * (size + 1) / 2
  if sum:get(1) ~= expected or sum:get(count) ~= expected then error "a wrong sum" end
  local all = dist.all_gather(ag.full({2}, rank))
  for i = 0, size - 1 do
    if all:get(2 * i + 1) ~= i then error "a wrong gather" end
  end
end

local ok, join_error = pcall(dist.init, {expiry = 2, init_timeout = 10, timeout = 20})
if not ok then
  emit("lost", {message = join_error})
  os.exit(0, true)
end

local number, next_report = 0, 0
while true do
  local is_right, err = pcall(step, number)
  number = number + 1
  if not is_right then
    if type(err) ~= "table" then emit("wrong", {message = err}) os.exit(1) end
    local failed_at = core.now()
    emit("failed", {code = err.code, culprits = table.concat(err.culprits or {}, ","), message = tostring(err)})
    local has_regrouped, regroup_error = pcall(dist.regroup, {min_size = 1, grace = 4})
    if not has_regrouped then
      emit("lost", {message = regroup_error})
      os.exit(0, true)
    end
    emit("regrouped", {size = dist.size(), epoch = dist.info().epoch, took = core.now() - failed_at})
  end
  if core.now() >= next_report then
    collectgarbage()
    next_report = core.now() + 0.5
    local mib, shared_mib = resident_mib()
    emit("alive", {steps = number, size = dist.size(), files = count_files(), mib = mib, shared_mib = shared_mib})
  end
end
