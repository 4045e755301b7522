--- environment: which launcher is found in which variables, in what order, and what is said of variables that do not fit.
local environment = require "argand.dist.environment"
local cases = require "support.cases"

local function detect(variables, parent)
  return environment.detect(function(name) return variables[name] end, function() return parent or "100-5" end)
end

local function with(base, changes)
  local result = {}
  for name, value in pairs(base) do result[name] = value end
  for name, value in pairs(changes or {}) do result[name] = value or nil end
  return result
end

local ARGAND = {ARGAND_RANK = "1", ARGAND_WORLD_SIZE = "4", ARGAND_LOCAL_RANK = "1", ARGAND_LOCAL_WORLD_SIZE = "2", ARGAND_JOB = "abc",
                ARGAND_COORDINATOR = "tcp://a:20000", ARGAND_EPOCH = "3", ARGAND_KEY_FILE = "/k", ARGAND_TIMEOUT = "2.5"}
local TORCHRUN = {RANK = "1", WORLD_SIZE = "4", LOCAL_RANK = "1", LOCAL_WORLD_SIZE = "2", MASTER_ADDR = "a", MASTER_PORT = "29500",
                  TORCHELASTIC_RUN_ID = "run7", TORCHELASTIC_RESTART_COUNT = "2"}
local OPENMPI = {OMPI_COMM_WORLD_RANK = "1", OMPI_COMM_WORLD_SIZE = "2", OMPI_COMM_WORLD_LOCAL_RANK = "1", OMPI_COMM_WORLD_LOCAL_SIZE = "2",
                 PMIX_NAMESPACE = "prterun-a-77@1"}
local PMI = {PMI_RANK = "0", PMI_SIZE = "3", MPI_LOCALRANKID = "0", MPI_LOCALNRANKS = "3"}
local SLURM = {SLURM_PROCID = "3", SLURM_NTASKS = "4", SLURM_LOCALID = "1", SLURM_NODEID = "1", SLURM_JOB_ID = "42", SLURM_STEP_ID = "0",
               SLURM_JOB_NODELIST = "n[07-08]", SLURM_TASKS_PER_NODE = "2(x2)"}
local KUBERNETES = {JOB_COMPLETION_INDEX = "2", ARGAND_WORLD_SIZE = "3", ARGAND_COORDINATOR = "tcp://job-0.svc:29400"}
local LWS = {LWS_WORKER_INDEX = "1", LWS_GROUP_SIZE = "2", LWS_LEADER_ADDRESS = "lws-0.lws"}

describe("a launcher", function()
  it("is found by its variables", function()
    local check = cases.begin()
    local port = environment.port_of "slurm-42-0"
    local list = {
      {"none", {}, {source = "none", rank = 0, size = 1, local_rank = 0, local_size = 1, epoch = 0}},
      {"empty variables", {RANK = "", WORLD_SIZE = ""}, {source = "none", rank = 0, size = 1, local_rank = 0, local_size = 1, epoch = 0}},
      {"argand", ARGAND, {source = "argand", rank = 1, size = 4, local_rank = 1, local_size = 2, job = "abc", coordinator = "tcp://a:20000", epoch = 3,
                          key_file = "/k", timeout = 2.5}},
      {"argand on one host", {ARGAND_RANK = "0", ARGAND_WORLD_SIZE = "2", ARGAND_LOCAL_RANK = "0", ARGAND_LOCAL_WORLD_SIZE = "2", ARGAND_JOB = "j"},
       {source = "argand", rank = 0, size = 2, local_rank = 0, local_size = 2, job = "j", coordinator = "ipc://@argand-j", epoch = 0}},
      {"torchrun", TORCHRUN, {source = "torchrun", rank = 1, size = 4, local_rank = 1, local_size = 2, coordinator = "tcp://a:29500", job = "run7", epoch = 2}},
      {"torchrun, whose agent has the port", with(TORCHRUN, {TORCHELASTIC_USE_AGENT_STORE = "True"}),
       {source = "torchrun", rank = 1, size = 4, local_rank = 1, local_size = 2, coordinator = "tcp://a:29501", job = "run7", epoch = 2}},
      {"torchrun on one host", with(TORCHRUN, {WORLD_SIZE = "2", MASTER_ADDR = "myhost"}),
       {source = "torchrun", rank = 1, size = 2, local_rank = 1, local_size = 2, coordinator = "tcp://127.0.0.1:29500", job = "run7", epoch = 2}},
      {"torchrun's variables by hand, IPv6", {RANK = "0", WORLD_SIZE = "2", MASTER_ADDR = "fd00::1", MASTER_PORT = "5"},
       {source = "torchrun", rank = 0, size = 2, coordinator = "tcp://[fd00::1]:5", epoch = 0}},
      {"OpenMPI", OPENMPI, {source = "openmpi", rank = 1, size = 2, local_rank = 1, local_size = 2, epoch = 0}},
      {"OpenMPI with an address", with(OPENMPI, {OMPI_COMM_WORLD_LOCAL_SIZE = "1", OMPI_COMM_WORLD_LOCAL_RANK = "0", ARGAND_COORDINATOR = "tcp://b:1"}),
       {source = "openmpi", rank = 1, size = 2, local_rank = 0, local_size = 1, coordinator = "tcp://b:1", epoch = 0}},
      {"PMI", PMI, {source = "pmi", rank = 0, size = 3, local_rank = 0, local_size = 3, job = "pmi-100-5", coordinator = "ipc://@argand-pmi-100-5", epoch = 0}},
      {"Slurm", SLURM, {source = "slurm", rank = 3, size = 4, local_rank = 1, local_size = 2, job = "slurm-42-0", coordinator = "tcp://n07:" .. port, epoch = 0}},
      {"Slurm on one host", with(SLURM, {SLURM_TASKS_PER_NODE = "4", SLURM_NODEID = "0", SLURM_RESTART_COUNT = "1"}),
       {source = "slurm", rank = 3, size = 4, local_rank = 1, local_size = 4, job = "slurm-42-0", coordinator = "ipc://@argand-slurm-42-0", epoch = 1}},
      {"Slurm, the step's own size and hosts", with(SLURM, {SLURM_NTASKS = "8", SLURM_STEP_NUM_TASKS = "4", SLURM_STEP_NODELIST = "n08,n07"}),
       {source = "slurm", rank = 3, size = 4, local_rank = 1, local_size = 2, job = "slurm-42-0", coordinator = "tcp://n08:" .. port, epoch = 0}},
      {"Slurm, uneven tasks", with(SLURM, {SLURM_TASKS_PER_NODE = "3,1", SLURM_LOCALID = "0"}),
       {source = "slurm", rank = 3, size = 4, local_rank = 0, local_size = 1, job = "slurm-42-0", coordinator = "tcp://n07:" .. port, epoch = 0}},
      {"an indexed job of Kubernetes", KUBERNETES, {source = "kubernetes", rank = 2, size = 3, coordinator = "tcp://job-0.svc:29400", epoch = 0}},
      {"an indexed job that is none of ours", {JOB_COMPLETION_INDEX = "2"}, {source = "none", rank = 0, size = 1, local_rank = 0, local_size = 1, epoch = 0}},
      {"a leader worker set", LWS, {source = "kubernetes", rank = 1, size = 2, coordinator = "tcp://lws-0.lws:29400", epoch = 0}},
      {"salloc's shell", with(SLURM, {SLURM_PROCID = false, SLURM_STEP_ID = false}), {source = "none", rank = 0, size = 1, local_rank = 0, local_size = 1, epoch = 0}},
      {"salloc's interactive step", with(SLURM, {SLURM_PROCID = "0", SLURM_STEP_ID = "4294967290"}),
       {source = "none", rank = 0, size = 1, local_rank = 0, local_size = 1, epoch = 0}},
      {"a batch script", with(SLURM, {SLURM_PROCID = "0", SLURM_STEP_ID = false}), {source = "none", rank = 0, size = 1, local_rank = 0, local_size = 1, epoch = 0}},
      {"srun with one task", with(SLURM, {SLURM_PROCID = "0", SLURM_NTASKS = "1"}), {source = "none", rank = 0, size = 1, local_rank = 0, local_size = 1, epoch = 0}},
    }
    for _, case in ipairs(list) do
      check(case[1], function()
        local result, err = detect(case[2])
        assert(result, err)
        for name, value in pairs(case[3]) do assert.equal(value, result[name], name) end
        if not case[3].job then result.job = nil end
        if not case[3].coordinator and result.size > 1 then
          assert.truthy(result.coordinator:find "^ipc://@argand%-ompi%-prterun%-a%-77%-1%-%x+$", result.coordinator)
          result.coordinator = nil
        end
        for name in pairs(result) do assert.is_not_nil(case[3][name], name) end
      end)
    end
    check.done()
  end)

  it("wins in a fixed order, and a disagreement is noted", function()
    local check = cases.begin()
    local all = {{"argand", ARGAND}, {"torchrun", TORCHRUN}, {"openmpi", OPENMPI}, {"pmi", PMI}, {"slurm", SLURM}}
    for i, first in ipairs(all) do
      for k = i + 1, #all do
        check(first[1] .. " over " .. all[k][1], function()
          local result, err = detect(with(all[k][2], first[2]))
          assert(result, err)
          assert.equal(first[1], result.source)
          local agrees = i == 1 and k == 2
          if agrees then return assert.is_nil(result.note) end
          local other = detect(all[k][2])
          assert.equal(("%s won with rank %d of %d; %s says rank %d of %d"):format(first[1], result.rank, result.size, all[k][1], other.rank, other.size),
            result.note)
        end)
      end
    end
    check("PMI of srun takes the address from Slurm", function()
      local result = assert(detect(with(SLURM, {PMI_RANK = "3", PMI_SIZE = "4", PMI_JOBID = "42.0"})))
      assert.same({"pmi", "tcp://n07:" .. environment.port_of "slurm-42-0"}, {result.source, result.coordinator})
      assert.is_nil(result.note)
    end)
    check.done()
  end)

  it("that says half is an error that names the other half", function()
    local check = cases.begin()
    local list = {
      {{RANK = "0"}, "WORLD_SIZE is not set although RANK is", "torchrun"}, {{WORLD_SIZE = "2"}, "RANK is not set although WORLD_SIZE is", "torchrun"},
      {{ARGAND_RANK = "0"}, "ARGAND_WORLD_SIZE is not set", "argand"}, {{ARGAND_WORLD_SIZE = "2"}, "ARGAND_RANK is not set", "argand"},
      {{OMPI_COMM_WORLD_RANK = "0"}, "OMPI_COMM_WORLD_SIZE is not set", "openmpi"}, {{PMI_SIZE = "2"}, "PMI_RANK is not set", "pmi"},
      {with(SLURM, {SLURM_NTASKS = false}), "SLURM_NTASKS is not set", "slurm"}, {with(SLURM, {SLURM_JOB_ID = false}), "SLURM_JOB_ID is not set", "srun"},
      {with(SLURM, {SLURM_JOB_NODELIST = false}), "SLURM_JOB_NODELIST is not set"}, {with(SLURM, {SLURM_JOB_NODELIST = "n[1"}), "SLURM_JOB_NODELIST: ", "position 2"},
      {with(TORCHRUN, {MASTER_PORT = false}), "MASTER_PORT is not set although MASTER_ADDR is"},
      {with(TORCHRUN, {MASTER_ADDR = false}), "MASTER_ADDR is not set although MASTER_PORT is"},
      {with(TORCHRUN, {MASTER_ADDR = false, MASTER_PORT = false}), "MASTER_ADDR and MASTER_PORT is not set", "on several hosts"},
      {with(OPENMPI, {OMPI_COMM_WORLD_LOCAL_SIZE = "1", OMPI_COMM_WORLD_LOCAL_RANK = "0"}), "ARGAND_COORDINATOR is not set", "on several hosts"},
      {with(OPENMPI, {OMPI_COMM_WORLD_LOCAL_SIZE = false}), "ARGAND_COORDINATOR is not set", "nothing says that all ranks are on one host"},
      {with(KUBERNETES, {ARGAND_COORDINATOR = false}), "ARGAND_COORDINATOR or LWS_LEADER_ADDRESS is not set"},
      {with(KUBERNETES, {ARGAND_WORLD_SIZE = false}), "ARGAND_WORLD_SIZE is not set although JOB_COMPLETION_INDEX is"},
      {with(LWS, {LWS_GROUP_SIZE = false}), "LWS_GROUP_SIZE is not set"},
      {with(ARGAND, {ARGAND_COORDINATOR = false}), "ARGAND_COORDINATOR is not set"},
    }
    for _, case in ipairs(list) do
      check(case[2], function()
        local result, err = detect(case[1])
        assert.is_nil(result)
        assert.equal("table", type(err))
        for i = 2, #case do assert.truthy(err.message:find(case[i], 1, true), err.message) end
      end)
    end
    check.done()
  end)

  it("that says what cannot be is an error", function()
    local check = cases.begin()
    local list = {
      {{RANK = "x"}, "RANK of torchrun is 'x'"}, {{RANK = "-1"}, "RANK of torchrun is '-1'"}, {{RANK = "1.5"}, "'1.5'"}, {{RANK = "1e0"}, "'1e0'"},
      {{RANK = " 1"}, "' 1'"}, {{RANK = "4"}, "RANK is 4, WORLD_SIZE is 4: ranks count from 0"}, {{WORLD_SIZE = "0"}, "WORLD_SIZE of torchrun is '0'"},
      {{WORLD_SIZE = "65537"}, "WORLD_SIZE"}, {{RANK = "99999999999999999999"}, "RANK"}, {{LOCAL_RANK = "2"}, "LOCAL_RANK is 2, LOCAL_WORLD_SIZE is 2"},
      {{LOCAL_WORLD_SIZE = "5"}, "LOCAL_WORLD_SIZE is 5, more than the 4 ranks"}, {{MASTER_PORT = "0"}, "MASTER_PORT"}, {{MASTER_PORT = "70000"}, "MASTER_PORT"},
      {{TORCHELASTIC_RESTART_COUNT = "-1"}, "TORCHELASTIC_RESTART_COUNT"}, {{ARGAND_EPOCH = "4294967296"}, "ARGAND_EPOCH"}, {{ARGAND_EPOCH = "one"}, "ARGAND_EPOCH"},
      {{ARGAND_TIMEOUT = "0"}, "ARGAND_TIMEOUT is '0'"}, {{ARGAND_TIMEOUT = "soon"}, "ARGAND_TIMEOUT"}, {{ARGAND_TIMEOUT = "inf"}, "ARGAND_TIMEOUT"},
      {{ARGAND_TIMEOUT = "nan"}, "ARGAND_TIMEOUT"},
    }
    for _, case in ipairs(list) do
      check(case[2], function()
        local result, err = detect(with(TORCHRUN, case[1]))
        assert.is_nil(result)
        assert.equal("value", err.code)
        assert.truthy(err.message:find(case[2], 1, true), err.message)
      end)
    end
    check.done()
  end)

  it("names the job in at most 63 plain bytes, the same on all ranks", function()
    local check = cases.begin()
    local names = {}
    for i, id in ipairs {"a/b c", "a-b-c", ("x"):rep(63), ("x"):rep(64), ("x"):rep(63) .. "y", "\255\1"} do
      check(id, function()
        local job = assert(detect(with(TORCHRUN, {TORCHELASTIC_RUN_ID = id}))).job
        assert.truthy(#job <= 63 and job:find "^[%w%._%-]+$", job)
        assert.is_nil(names[job])
        names[job] = i
      end)
    end
    check("without an id the address names it", function()
      local variables = with(TORCHRUN, {TORCHELASTIC_RUN_ID = "none"})
      local job = assert(detect(variables)).job
      assert.equal(job, assert(detect(with(variables, {RANK = "0", LOCAL_RANK = "0"}))).job)
      assert.not_equal(job, assert(detect(with(variables, {MASTER_PORT = "29501"}))).job)
    end)
    check.done()
  end)

  it("is that of this process by default", function()
    local result = assert(environment.detect())
    assert.is_string(result.source)
  end)
end)

describe("the remedy for a variable that is missing", function()
  it("says who sets it", function()
    local _, err = detect(with(TORCHRUN, {WORLD_SIZE = false}))
    assert.equal("torchrun sets both; unset both for one process", err.hint)
    _, err = detect(with(KUBERNETES, {ARGAND_WORLD_SIZE = false}))
    assert.equal("set it in the pod template to the job's completions", err.hint)
  end)
end)
