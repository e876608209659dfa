-- Shows that slurmctld runs the file it was given, beside a readable decision table.
function slurm_job_submit(job_desc, part_list, submit_uid)
    local line = io.open("/etc/caelum/decisions"):read("*l")
    job_desc.comment = "submitted under " .. line
    return slurm.SUCCESS
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
    return slurm.SUCCESS
end

return slurm.SUCCESS
