--- Tensors of more than 2^31 elements, with memory behind them (views of that size: shape_methods_spec).
local ag = require "argand"

local COUNT = 2 ^ 31 + 5

-- What a container may have, whatever the machine has.
local function allowed_kib()
  for _, path in ipairs {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} do
    local file = io.open(path)
    if file then
      local bytes = tonumber(file:read "*l")
      file:close()
      if bytes then return bytes / 1024 end
    end
  end
  return math.huge
end

-- Why this cannot run here, nil when it can.
local function obstacle()
  if not ag.info().build:find("sanitizers: none", 1, true) then return "too slow under sanitizers" end
  local available
  for line in io.lines "/proc/meminfo" do available = available or line:match "^MemAvailable:%s+(%d+) kB" end
  available = math.min(tonumber(available), allowed_kib())
  if available < 8 * 2 ^ 20 then return ("needs 8 GiB, %d MiB are available"):format(available / 1024) end
end

describe("a tensor of more than 2^31 elements", function()
  it("is written, reduced, compared and indexed past 2^31 #slow", function()
    local reason = obstacle()
    if reason then return pending(reason) end
    local x = ag.ones(COUNT, { dtype = "u8" })
    x[COUNT] = 7
    x[2 ^ 31 + 1] = 3
    assert.equal(COUNT + 6 + 2, x:sum():item())
    assert.equal(COUNT, x:argmax():item())
    assert.same({ 1, 3 }, x[{ { 2 ^ 31, 2 ^ 31 + 1 } }]:tolist())
    local large = x:gt(1)
    x:free()
    assert.same({ 2 ^ 31 + 1, COUNT }, large:nonzero():reshape(-1):tolist())
    assert.same({ { false }, { true } }, large:reshape(-1, 1):narrow(1, 2 ^ 31, 2):tolist())
    large:bitwise_not_()
    assert.equal(COUNT - 2, large:sum():item())
    large:free()
    ag.memory_trim()
  end)
end)
