--- launchers: examples/distributed/digits.lua trains under each launcher, and alone, to the same end.
local core = require "argand.core"
local job = require "support.job"

local LIMIT_S = 150
local root = debug.getinfo(1, "S").source:match "^@(.*)spec/dist/[^/]*$"
if root == "" then root = "./" end

local function quoted(text) return "'" .. tostring(text):gsub("'", "'\\''") .. "'" end

local script = quoted(root .. "examples/distributed/digits.lua")
local argand = quoted(core.process.self().program)

-- Starts a shell command; the function returned waits and gives its output and its exit code.
local function start(command, variables)
  local settings = {}
  for name, value in pairs(variables or {}) do settings[#settings + 1] = name .. "=" .. quoted(value) end
  local line = ("env %s timeout -k 5 %d %s 2>&1; echo exit $?"):format(table.concat(settings, " "), LIMIT_S, command)
  local pipe = io.popen(line)
  return function()
    local out, code = pipe:read("*a"):match "^(.*)exit (%d+)\n$"
    pipe:close()
    return out, tonumber(code)
  end
end

local function accuracy_of(out) return out:match "test accuracy (%d%.%d+)\n$" end

-- Two processes with variables of their own, as a launcher starts them. Returns the accuracy that rank 0 prints.
local function run_pair(variables_of)
  local first = start(("%s %s --epochs 3"):format(argand, script), variables_of(0))
  local second = start(("%s %s --epochs 3"):format(argand, script), variables_of(1))
  local out, code = first()
  local other_out, other_code = second()
  assert.equal(0, code, out)
  assert.equal(0, other_code, other_out)
  assert.equal("", other_out)
  assert.is_truthy(out:find("^2 ranks over "), out)
  return assert(accuracy_of(out), out)
end

local function has_program(name)
  return os.execute(("command -v %s >/dev/null 2>&1"):format(name)) == 0
end

local is_available = core.dist.is_available()
local it_with_jobs = is_available and it or function(name) pending(name .. ": built without ZeroMQ") end

describe("examples/distributed/digits.lua", function()
  local of_two -- the accuracy of two ranks after three epochs, whoever starts them

  local function check_same(accuracy)
    of_two = of_two or accuracy
    assert.equal(of_two, accuracy)
    assert.is_true(tonumber(accuracy) > 0.8, accuracy)
  end

  it("trains alone", function()
    local out, code = start(("%s %s --epochs 3"):format(argand, script))()
    assert.equal(0, code, out)
    assert.is_truthy(out:find "^1 ranks over none; 1438 digits to train on, 359 to test\n", out)
    assert.is_true(tonumber(accuracy_of(out)) > 0.8, out)
  end)

  it_with_jobs("reaches 97 % with four ranks of argand run", function()
    local out, code = start(("%s run -n 4 %s"):format(argand, script))()
    assert.equal(0, code, out)
    local accuracy = tonumber(out:match "test accuracy (%d%.%d+)\n$")
    assert.is_true(accuracy ~= nil and accuracy >= 0.97, out:sub(-200))
    assert.is_nil(out:find("[1]", 1, true), out) -- only rank 0 prints
  end)

  it_with_jobs("runs under mpirun", function()
    if not has_program "mpirun" then return pending "there is no mpirun" end
    local out, code = start(("mpirun --oversubscribe -n 2 %s %s --epochs 3"):format(argand, script),
      { OMPI_ALLOW_RUN_AS_ROOT = 1, OMPI_ALLOW_RUN_AS_ROOT_CONFIRM = 1 })()
    assert.equal(0, code, out)
    assert.is_truthy(out:find "2 ranks over ", out)
    check_same(assert(accuracy_of(out), out))
  end)

  it_with_jobs("runs as tasks of a Slurm step", function()
    local pid = core.process.self().pid
    check_same(run_pair(function(rank)
      return { SLURM_JOB_ID = pid, SLURM_STEP_ID = 0, SLURM_PROCID = rank, SLURM_NTASKS = 2, SLURM_LOCALID = rank,
        SLURM_NODEID = 0, SLURM_NNODES = 1, SLURM_STEP_TASKS_PER_NODE = "2", SLURM_JOB_NODELIST = "localhost" }
    end))
  end)

  it_with_jobs("runs with torchrun's variables", function()
    local port = job.free_port()
    check_same(run_pair(function(rank)
      return { RANK = rank, WORLD_SIZE = 2, LOCAL_RANK = rank, LOCAL_WORLD_SIZE = 2, MASTER_ADDR = "127.0.0.1",
        MASTER_PORT = port }
    end))
  end)

  it("refuses arguments that it does not know", function()
    for _, arguments in ipairs { "--epoch 3", "--epochs", "--epochs 0", "--epochs 1.5", "file" } do
      local out, code = start(("%s %s %s"):format(argand, script, arguments))()
      assert.equal(2, code, out)
    end
  end)

  it("leaves nothing behind", function()
    local left = job.leftovers()
    job.remove_folder()
    assert.equal("", table.concat(left, "\n"))
  end)
end)
